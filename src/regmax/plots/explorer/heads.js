// All heads of a model as thumbnails, a row per layer. They are painted in slices, row by row of the weights.
//
// Every drawing has new canvases, and none is cleared: when Chromium prints a canvas that was, it puts the page so far into
// a form of the PDF file, and after about 30 nested forms readers give up and show only the rest of the page.

const NARROW = 54; // pixels: below this width a thumbnail's caption has two lines

class Heads {
  constructor(figure, prefix, open) {
    Object.assign(this, { figure, prefix, open });
  }

  // views: those of one model, with their numbers; setting: the panel's; own: each head under its own mapping.
  draw(example, views, setting, options) {
    const layers = new Map();
    views.forEach((one) => layers.set(one.view.layer, [...(layers.get(one.view.layer) ?? []), one]));
    const most = Math.max(...[...layers.values()].map((heads) => heads.length));
    const name = layers.size > 1 || views[0].view.layer ? 74 : 0;
    const gap = 6;
    const size = clamp(Math.floor((options.width - name - 8) / most - gap), [26, 132]);
    const part = MAPPINGS[setting.mapping].clusters ? "cluster" : "segment";
    this.captions = `below each head: words with weight${size < NARROW ? ", then" : " ·"} words per ${part}`;
    const grid = node("div", { className: "heads" });
    grid.style.gridTemplateColumns = `${name ? `${name}px ` : ""}repeat(${most}, ${size}px)`;
    const thumbs = [];
    for (const [layer, heads] of layers) {
      if (name) grid.append(node("span", { className: "layer", textContent: layer, title: layer }));
      heads.forEach((one, k) => {
        const thumb = this.thumb(one, k, size);
        if (k === 0) thumb.button.style.gridColumnStart = name ? 2 : 1;
        thumbs.push(thumb);
        grid.append(thumb.button);
      });
    }
    this.figure.replaceChildren(grid);
    this.figure.dataset.heads = thumbs.length;
    delete this.figure.dataset.painted;
    this.mark(setting.view);
    const steps = painted(thumbs, example, setting, options);
    const done = () => (this.figure.dataset.painted = thumbs.length);
    const run = options.whole ? atOnce : inSlices; // the printer does not wait
    run(`${this.prefix} heads`, steps, done);
  }

  thumb({ view, number }, k, size) {
    const canvas = node("canvas");
    const caption = node("span", { className: "count", textContent: "…" });
    const button = node(
      "button",
      { type: "button", className: "head", onclick: () => this.open(number), "data-view": number },
      node("span", { className: "number", textContent: view.layer ? k + 1 : view.name }),
      canvas,
      caption,
    );
    button.setAttribute("aria-label", view.name);
    return { view, size, canvas, caption, button };
  }

  mark(number) {
    this.figure
      .querySelectorAll(".head")
      .forEach((button) => button.toggleAttribute("aria-current", Number(button.dataset.view) === number));
  }
}

// A caption has room for few digits: 3.4, 65.
const twoDigits = (mean) => mean.toFixed(mean < 9.95 ? 1 : 0);

// Models that were trained with different mappings are each shown under their own.
const ownMappings = (views) => new Set(views.map(({ view }) => view.mapping)).size > 1;

// Map and paint head after head. Weights are forgotten at once: those of a whole model would not fit in memory.
function* painted(thumbs, example, setting, { palette, scaling }) {
  const separate = ownMappings(thumbs);
  for (const { view, size, canvas, caption, button } of thumbs) {
    const scores = scoresOf(view);
    const own = separate && view.mapping ? parseSetting(view.mapping, "softmax") : setting;
    const weights = new Weights(scores, settingOf(view, own));
    const rows = [];
    for (let i = 0; i < scores.length; ++i) {
      rows.push(weights.measure(i));
      yield;
    }
    const scale = scaling === "one" ? 1 : weights.largest || 1;
    const [n, d] = [scores.length, example.source.length];
    const image = new ImageData(d, n);
    const pixels = new Uint32Array(image.data.buffer);
    rows.forEach((y, i) =>
      paintPixels(pixels.subarray(i * d, (i + 1) * d), y, scores[i], { rtl: example.rtl, palette, scale }),
    );
    const context = sized(canvas, size, clamp(Math.round((size * n) / d), [8, 2 * size]));
    context.imageSmoothingEnabled = d > size || n > size;
    context.drawImage(bitmap(image), 0, 0, size, parseFloat(canvas.style.height));
    const { support, words, length, zeros } = weights.averages();
    caption.textContent = [support, length].map(twoDigits).join(size < NARROW ? "\n" : " · ");
    const kind = weights.clustered ? "clusters" : "segments";
    const said = `${view.name}: support ${support.toFixed(1)} of ${words.toFixed(0)} words, ${kind} of ${length.toFixed(2)}, ${(100 * zeros).toFixed(0)} % zero`;
    button.setAttribute("aria-label", said);
    button.title = said;
    yield;
  }
}
