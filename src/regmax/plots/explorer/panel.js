// One panel: a mapping, its strengths, and the picture of the weights: heat map, lines, or all heads.

const NAMES = Object.keys(MAPPINGS).filter((name) => name !== RECORDED);
const SYMBOLS = { gamma: "γ", lam: "λ", p: "p", alpha: "α" };
const WORDS = { gamma: "smoothness", lam: "fusing", p: "norm", alpha: "sparsity" };
const MEANINGS = {
  gamma: "strength of the regularizer: larger is smoother, smaller is sparser",
  lam: "how strongly weights are fused: 0 is sparsemax",
  p: "the norm: 2 is sparsemax, smaller is denser",
  alpha: "1 is softmax, 2 is sparsemax",
};

const AT_ONCE = 20000; // cells: of more, the averages are taken when the slider rests
const REST = 120; // milliseconds

// `act` has the page's reactions: change(update), download(kind), open(view), scrolled().
class Panel {
  constructor(index, act) {
    this.prefix = ["left", "right"][index];
    this.change = act.change;
    this.figure = node("div", {
      className: "figure",
      role: "grid",
      tabIndex: 0,
      id: `${this.prefix}-figure`,
    });
    this.window = node("div", { className: "window" }, this.figure);
    this.kinds = {
      map: new Sheet(this.figure, this.prefix),
      lines: new Lines(this.figure),
      heads: new Heads(this.figure, this.prefix, act.open),
    };
    this.figure.onscroll = () => {
      if (this.show === "heads") return;
      this.shown.scrolled();
      this.hint();
      act.scrolled();
    };
    this.mappings = this.choice("mapping", (value) => act.change({ mapping: value }));
    this.models = this.choice("model", (value) => act.change({ model: value }));
    this.views = this.choice("scores", (value) => act.change({ view: Number(value), row: 0 }));
    this.sliders = Object.fromEntries(Object.keys(SYMBOLS).map((name) => [name, this.slider(name)]));
    this.saves = ["SVG", "PNG"].map((kind) =>
      node("button", { type: "button", textContent: kind, onclick: () => act.download(kind.toLowerCase()) }),
    );
    this.saves.forEach((button) =>
      button.setAttribute("aria-label", `Download the ${this.prefix} picture as ${button.textContent}`),
    );
    this.averages = node("p", { className: "averages" });
    this.extent = node("p", { className: "extent" });
    this.chips = node("span", { className: "chips", role: "group", "aria-label": "Heads that are drawn" });
    const choices = [
      this.mappings.root,
      this.models.root,
      this.views.root,
      node("span", { className: "saves" }, ...this.saves),
      this.chips,
    ];
    this.root = node(
      "article",
      { className: "panel", id: this.prefix },
      node("div", { className: "choices" }, ...choices),
      node("div", { className: "sliders" }, ...Object.values(this.sliders).map((slider) => slider.root)),
      this.averages,
      this.window,
      this.extent,
    );
  }

  get shown() {
    return this.kinds[this.show];
  }

  choice(label, choose) {
    const id = `${this.prefix}-${label}`;
    const select = node("select", { id, onchange: (event) => choose(event.target.value) });
    const root = node(
      "span",
      { className: "choice" },
      node("label", { htmlFor: id, textContent: label }),
      select,
    );
    const fill = (names, values = names) => {
      const key = JSON.stringify([names, values]);
      if (select.dataset.key === key) return;
      select.dataset.key = key;
      select.replaceChildren(
        ...names.map((name, k) => node("option", { value: values[k], textContent: name })),
      );
    };
    return { root, select, fill };
  }

  slider(name) {
    const id = `${this.prefix}-${name}`;
    const [min, max] = LIMITS[name];
    const range = node("input", { type: "range", id, min: 0, max: 1, step: "any", title: MEANINGS[name] });
    const number = node("input", {
      type: "number",
      min,
      max,
      step: "any",
      "aria-label": `${name}, ${this.prefix}`,
    });
    range.oninput = () => this.change({ [name]: fromSlider(name, Number(range.value)) });
    range.onkeydown = (event) => this.step(event, name, Number(range.value));
    number.onchange = () => {
      const value = number.value === "" ? NaN : Number(number.value);
      this.change(Number.isFinite(value) ? { [name]: clamp(value, LIMITS[name]) } : {});
    };
    const label = node(
      "label",
      { htmlFor: id, title: `${name}: ${MEANINGS[name]}` },
      node("i", { textContent: SYMBOLS[name] }),
      ` ${WORDS[name]}`,
    );
    return { root: node("span", { className: "slider" }, label, range, number), range, number };
  }

  // Browsers differ in the keys of a slider with step "any".
  step(event, name, position) {
    const sizes = {
      ArrowRight: 0.02,
      ArrowUp: 0.02,
      ArrowLeft: -0.02,
      ArrowDown: -0.02,
      PageUp: 0.1,
      PageDown: -0.1,
    };
    if (!(event.key in sizes)) return;
    event.preventDefault();
    this.change({ [name]: fromSlider(name, clamp(position + sizes[event.key], [0, 1])) });
  }

  // Show a setting and its weights; `content` is the panel of heatmap.js. A panel that has not changed stays.
  draw(setting, example, content, options) {
    const { show, zoom, scale, scaling, palette, whole } = options;
    const width = whole ? options.paper : this.figure.clientWidth || 480;
    const key = JSON.stringify([
      formatSetting(setting),
      example.index,
      show,
      zoom,
      scale,
      scaling,
      palette.paper,
      whole,
      width,
      whole ? 0 : innerHeight, // a taller window shows more rows
    ]);
    if (key === this.key) return;
    this.key = key;
    Object.assign(this, { content, show, width, scale });
    this.drawControls(setting, example);
    this.drawChips(setting, example, palette);
    const said = { map: "Weights", lines: "Lines", heads: "All heads" }[show];
    this.figure.setAttribute("role", show === "heads" ? "group" : "grid");
    this.figure.setAttribute(
      "aria-label",
      `${said} of ${setting.mapping}; arrow keys step through the words`,
    );
    this.figure.tabIndex = show === "heads" ? -1 : 0;
    const full = { ...options, width, prefix: this.prefix };
    if (show === "heads") this.kinds.heads.draw(example, modelViews(example, setting), setting, full);
    else {
      stopTask(`${this.prefix} heads`);
      stopTask(`${this.prefix} cells`);
      this.shown.draw(content, full);
    }
    this.saves[0].hidden = show !== "map";
    this.saves[1].hidden = show === "heads";
    this.hint();
    this.measure();
  }

  drawControls(setting, example) {
    const { recorded } = example.views[clampedView(example, setting)];
    this.mappings.fill(recorded ? [RECORDED, ...NAMES] : NAMES);
    this.mappings.select.value = setting.mapping;
    const mine = modelViews(example, setting);
    const models = modelsOf(example);
    this.models.fill(models);
    this.models.select.value = mine[0].view.model;
    this.models.root.hidden = models.length < 2;
    this.views.fill(
      mine.map(({ view }) => view.name),
      mine.map(({ number }) => number),
    );
    this.views.select.value = clampedView(example, setting);
    this.views.root.hidden = mine.length < 2;
    for (const [name, { root, range, number }] of Object.entries(this.sliders)) {
      root.hidden = !MAPPINGS[setting.mapping].parameters.includes(name);
      if (root.hidden) continue;
      if (document.activeElement !== range || fromSlider(name, Number(range.value)) !== setting[name])
        range.value = SCALES[name].from(setting[name]);
      range.setAttribute("aria-valuetext", `${name} ${setting[name]}`);
      number.value = setting[name];
    }
  }

  // The heads of the layer, to draw several as lines; their colours are those of the lines.
  drawChips(setting, example, palette) {
    const mine = layerViews(example, setting);
    this.chips.hidden = this.show !== "lines" || mine.length < 2;
    if (this.chips.hidden) return;
    const own = clampedView(example, setting);
    const chips = mine.map(({ view, number }, k) => {
      const toggle = () => this.change(toggled(setting, own, number));
      const chip = node("button", { type: "button", onclick: toggle, title: view.name }, chipName(view, k));
      chip.setAttribute("aria-label", view.name);
      chip.setAttribute("aria-pressed", number === own || setting.also.includes(number));
      chip.style.setProperty("--head", headColour(palette, k));
      return chip;
    });
    this.chips.replaceChildren("heads", ...chips);
  }

  // The averages over all rows; those of a long text follow when they are known.
  measure() {
    const { weights } = this.content;
    const name = `${this.prefix} averages`;
    if (this.show === "heads") {
      stopTask(name);
      this.averages.textContent = this.kinds.heads.captions;
      return;
    }
    const copy = new Weights(weights.scores, weights.setting);
    copy.known = weights.known;
    const steps = (function* () {
      for (let i = 0; i < copy.scores.length; ++i) yield copy.measure(i);
    })();
    const show = () => (this.averages.textContent = averagesText(copy));
    if (copy.scores.length * copy.scores[0].length > AT_ONCE) inSlices(name, steps, show, REST);
    else atOnce(name, steps, show);
  }

  // A shadow at every edge beyond which there is more, and its extent in words.
  hint() {
    const { figure } = this;
    const more = [
      ["left", figure.scrollLeft > 1],
      ["up", figure.scrollTop > 1],
      ["right", figure.scrollLeft + figure.clientWidth < figure.scrollWidth - 1],
      ["down", figure.scrollTop + figure.clientHeight < figure.scrollHeight - 1],
    ];
    this.window.dataset.more = more
      .filter(([, beyond]) => beyond)
      .map(([name]) => name)
      .join(" ");
    // Without a scroll bar, the picture extends into the room that is reserved for one.
    const bar = figure.scrollHeight > figure.clientHeight ? figure.offsetWidth - figure.clientWidth : 0;
    this.window.style.setProperty("--bar", `${bar}px`);
    const extent = this.show === "heads" ? "" : this.shown.extent();
    this.extent.textContent = extent && `${extent}${this.window.dataset.more ? ": scroll for more" : ""}`;
  }

  mark(row, column, hovered) {
    if (this.show === "heads") return;
    const clamped = Math.min(row, this.content.target.length - 1);
    this.shown.mark(clamped, column, hovered);
    const cell = column === null ? null : $(`${this.prefix}-${clamped}-${column}`);
    const active = cell?.id ?? `${this.prefix}-row${clamped}`;
    if ($(active)) this.figure.setAttribute("aria-activedescendant", active);
    else this.figure.removeAttribute("aria-activedescendant");
  }
}

function averagesText(weights) {
  const { support, words, length } = weights.averages();
  const { mapping } = weights.setting;
  const kind = weights.clustered ? "clusters" : "segments";
  const text = `on average ${support.toFixed(1)} of ${words.toFixed(words % 1 ? 1 : 0)} words, ${kind} of ${length.toFixed(2)}`;
  const fuses = mapping === "fusedmax" || mapping === "oscarmax";
  return fuses && length < 1.15 && words > 1
    ? `${text}: raise λ to see ${weights.clustered ? "larger" : "longer"} ones`
    : text;
}

// The heads that are drawn as lines: the panel's own, then the others of its layer that were chosen.
function headsOf(example, setting) {
  const own = clampedView(example, setting);
  return layerViews(example, setting)
    .map(({ view, number }, k) => ({ view, number, k }))
    .filter(({ view, number }) =>
      number === own || (setting.also.includes(number) && sameWords(view, example.views[own])))
    .map(({ view, number, k }) => ({ k, own: number === own, weights: weightsOf(view, setting) }));
}

const sameWords = (a, b) => a.target.length === b.target.length && a.target.every((t, i) => t === b.target[i]);
const headColour = (palette, k) => palette.heads[k % palette.heads.length];
const chipName = (view, k) => (view.layer ? String(k + 1) : shortened(view.name, 12));

// A click adds a head or takes it away; without the panel's own, the next one becomes it.
function toggled(setting, own, number) {
  if (number !== own)
    return {
      also: setting.also.includes(number)
        ? setting.also.filter((one) => one !== number)
        : [...setting.also, number],
    };
  const [next, ...also] = setting.also;
  return next === undefined ? {} : { view: next, also };
}

function layerViews(example, setting) {
  const { layer } = example.views[clampedView(example, setting)];
  return modelViews(example, setting).filter(({ view }) => view.layer === layer);
}

// The models of an example in order, and the views of the panel's model with their numbers.
const modelsOf = (example) => [...new Set(example.views.map((view) => view.model))];
const clampedView = (example, setting) => Math.min(setting.view, example.views.length - 1);
function modelViews(example, setting) {
  const { model } = example.views[clampedView(example, setting)];
  return example.views.map((view, number) => ({ view, number })).filter(({ view }) => view.model === model);
}
