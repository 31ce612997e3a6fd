// Heads as lines between two columns of words: from each target word to the source words that it attends to. Several
// heads have a colour each.

const FAINT = 0.02; // of the scale: fainter lines of long texts are not drawn
const SHORT = 60; // words: up to this many, every nonzero weight has a line

class Lines {
  constructor(figure) {
    this.figure = figure;
  }

  draw(panel, options) {
    const rows = Math.max(panel.target.length, panel.source.length);
    const usual = rows <= 40 ? 21 : 15;
    const pitch = options.whole ? clamp((PAGE + 80) / rows, [10.5, usual]) : usual;
    const widest = (tokens) =>
      tokens.reduce((most, token) => Math.max(most, textWidth(shortened(token))), 24);
    const side = (tokens) =>
      Math.ceil(Math.min(1.1 * Math.max(widest(tokens), textWidth("attends to")) + 14, 0.36 * options.width));
    const at = { pitch, left: side(panel.target), right: options.width - side(panel.source) - 8, top: 22 };
    at.height = at.top + pitch * rows + 6;
    Object.assign(this, { panel, options, at, chosen: this.chosen ?? 0, column: null });
    this.canvas = node("canvas", { className: "threads" });
    this.body = node("div", { className: "body" }, this.canvas);
    Object.assign(this.body.style, { width: `${options.width - 4}px`, height: `${at.height}px` });
    const y = this.figure.scrollTop;
    this.figure.replaceChildren(this.body);
    this.figure.scrollTo(0, y);
    this.paint();
  }

  paint() {
    const { at, options, figure, body } = this;
    const height = options.whole ? at.height : clamp(figure.clientHeight, [1, at.height]);
    const y = options.whole ? 0 : figure.scrollTop;
    if (options.whole) this.canvas.width = 0; // instead of clearing it: see heads.js
    const context = sized(this.canvas, parseFloat(body.style.width), height, options.whole ? 3 : 1);
    if (!options.whole) context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.translate(0, -y);
    context.textBaseline = "middle";
    this.window = [Math.floor((y - at.top) / at.pitch), Math.ceil((y + height - at.top) / at.pitch)];
    this.paintLines(context);
    this.paintWords(context);
  }

  scrolled() {
    this.paint();
  }

  middle(k) {
    return this.at.top + this.at.pitch * (k + 0.5);
  }

  // The lines of the visible target words, the chosen one's last.
  paintLines(context) {
    const { panel, options, chosen } = this;
    const [first, last] = panel.target.length <= 3 * SHORT ? [0, panel.target.length] : this.window;
    const { palette } = options;
    const several = panel.heads.length > 1;
    this.drawn = 0;
    for (let i = Math.max(0, first); i < Math.min(last, panel.target.length); ++i)
      for (const { weights, k } of i === chosen ? [] : panel.heads) {
        const colour = several ? headColour(palette, k) : palette.ramp[2];
        this.paintRow(context, weights.row(i), i, colour, options.hovered ? 0.2 : several ? 0.4 : 0.75);
      }
    if (chosen < panel.target.length)
      for (const { weights, k } of panel.heads)
        this.paintRow(context, weights.row(chosen), chosen, several ? headColour(palette, k) : palette.chosen, 1);
    this.figure.dataset.lines = this.drawn;
  }

  paintRow(context, y, i, colour, strength) {
    const { panel, at, options } = this;
    const least = panel.source.length <= SHORT ? 0 : FAINT * options.scale;
    context.strokeStyle = colour;
    for (let j = 0; j < y.length; ++j) {
      if (y[j] <= least) continue;
      const share = Math.min(1, y[j] / options.scale);
      context.globalAlpha = strength * Math.max(0.07, share);
      context.lineWidth = 0.8 + 2 * share;
      context.beginPath();
      context.moveTo(at.left, this.middle(i));
      context.lineTo(at.right, this.middle(j));
      context.stroke();
      ++this.drawn;
    }
    context.globalAlpha = 1;
  }

  paintWords(context) {
    const { panel, at, options, chosen } = this;
    const ink = options.palette.ink;
    const size = at.pitch >= 18 ? FONT.size : at.pitch >= 13 ? 11 : 9.5;
    const write = (text, x, k, align, bold) => {
      context.textAlign = align;
      context.font = `${bold ? 700 : 400} ${size}px ${FONT.family}`;
      context.fillText(text, x, k);
    };
    this.paintChosen(context);
    context.fillStyle = ink;
    const far = options.width - 4 - at.right - 8;
    for (let k = Math.max(0, this.window[0]); k < this.window[1]; ++k) {
      const [mine, theirs] = [panel.target[k], panel.source[k]];
      if (mine !== undefined)
        write(
          isolated(fitted(mine, (at.left - 12) / 1.1)),
          at.left - 8,
          this.middle(k),
          "right",
          k === chosen,
        );
      if (theirs !== undefined)
        write(isolated(fitted(theirs, far / 1.1)), at.right + 8, this.middle(k), "left", k === this.column);
    }
    context.globalAlpha = 0.75;
    write("word", at.left - 8, 11, "right", false);
    write("attends to", at.right + 8, 11, "left", false);
    context.globalAlpha = 1;
  }

  // The support of the chosen word on the side of the source, one bar per segment, heads side by side.
  paintChosen(context) {
    const { panel, at, options, chosen } = this;
    if (chosen >= panel.target.length) return;
    const wide = panel.heads.length === 1 ? 4 : 6 / panel.heads.length;
    panel.heads.forEach(({ weights, k }, place) => {
      context.fillStyle = panel.heads.length > 1 ? headColour(options.palette, k) : options.palette.chosen;
      for (const { start, stop, weight } of runs(weights.row(chosen), weights.scores[chosen])) {
        if (weight === 0) continue;
        context.globalAlpha = Math.max(0.15, Math.min(1, weight / options.scale));
        const top = this.middle(start) - at.pitch / 2 + 1;
        context.fillRect(at.right + 1 + place * wide, top, wide, at.pitch * (stop - start) - 2);
      }
    });
    context.globalAlpha = 1;
  }

  place(event) {
    const box = this.body.getBoundingClientRect();
    const { at, panel } = this;
    const k = Math.floor((event.clientY - box.top - at.top) / at.pitch);
    if (event.clientX - box.left > (at.left + at.right) / 2)
      return panel.source[k] === undefined ? null : { row: this.chosen, column: k };
    return panel.target[k] === undefined ? null : { row: k, column: null };
  }

  mark(row, column, hovered) {
    this.options.hovered = hovered;
    if (row === this.chosen && column === this.column && hovered === this.before) return;
    Object.assign(this, { chosen: row, column, before: hovered });
    this.paint();
  }

  reveal(row) {
    const { figure } = this;
    const [top, bottom] = [this.middle(row) - 30, this.middle(row) + 30];
    if (top < figure.scrollTop) figure.scrollTo(0, top);
    else if (bottom > figure.scrollTop + figure.clientHeight)
      figure.scrollTo(0, bottom - figure.clientHeight);
  }

  extent() {
    const longest = Math.max(this.panel.target.length, this.panel.source.length);
    const [from, to] = [Math.max(0, this.window[0]), Math.min(longest, this.window[1])];
    const left = longest > SHORT ? `lines from ${FAINT} of the scale on` : "";
    return [to - from < longest ? `words ${from + 1}–${to} of ${longest}` : "", left]
      .filter(Boolean)
      .join(", ");
  }
}
