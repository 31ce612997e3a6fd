// A heat map in a window that scrolls: the labels stay, and only the visible part of a large map is painted.

const AT_FIRST = 8; // milliseconds for the rows that a change paints at once; the others follow in slices

class Sheet {
  constructor(figure, prefix) {
    Object.assign(this, { figure, prefix });
  }

  // options: {width, zoom, least, palette, scale, prefix, whole}; `whole` paints everything at once, for print.
  // Labels and geometry stay as they are if only the weights have changed.
  draw(panel, options) {
    const { palette, width, zoom, least, whole } = options;
    const same = [panel.source, panel.target, palette, width, zoom, least, whole];
    if (
      this.same === undefined ||
      !this.body.isConnected ||
      same.some((value, k) => value !== this.same[k])
    ) {
      const other = this.same?.[0] !== panel.source;
      Object.assign(this, { panel, options, same, at: layout(panel, options) });
      this.build(other);
    }
    Object.assign(this, { panel, options });
    this.paint();
  }

  // Another sentence is shown from its beginning, which is at the right if it runs from right to left.
  build(other) {
    const { panel, at } = this;
    const { palette } = this.options;
    const [rest, below] = [at.width - at.left, at.height - at.top];
    this.columns = part("columns", at.left, 0, rest, at.top, palette, columnLabels(panel, at));
    this.rows = part("rows", 0, at.top, at.left, below, palette, rowLabels(panel, at));
    // Chromium prints some canvases 2 % smaller than they are, so that columns and labels part: rectangles if possible.
    this.painted = panel.target.length * panel.source.length > (this.options.whole ? PLAIN : SMALL);
    this.cells = this.painted
      ? node("canvas", { className: "cells" })
      : part("cells", at.left, at.top, at.body.width, at.body.height, palette);
    this.rowCursor = node("div", { className: "cursor" });
    this.cellCursor = node("div", { className: "cursor cell-cursor", hidden: true });
    this.body = node("div", { className: "body" }, this.cells, this.rowCursor, this.cellCursor);
    Object.assign(this.body.style, { width: `${at.body.width}px`, height: `${at.body.height}px` });
    const sheet = node("div", { className: "sheet" }, corner(), this.columns, this.rows, this.body);
    sheet.style.gridTemplateColumns = `${at.left}px ${rest}px`;
    sheet.style.gridTemplateRows = `${at.top}px ${below}px`;
    const [x, y] = other ? [panel.rtl ? at.width : 0, 0] : [this.figure.scrollLeft, this.figure.scrollTop];
    this.figure.replaceChildren(sheet);
    this.figure.scrollTo(x, y);
    this.cells.style.left = `${at.left}px`;
    this.cells.style.top = `${at.top}px`;
  }

  // The window on the body that scrolling has left.
  seen() {
    const { at, figure, options } = this;
    if (options.whole) return { x: 0, y: 0, ...at.body };
    return {
      x: figure.scrollLeft,
      y: figure.scrollTop,
      width: clamp(figure.clientWidth - at.left, [1, at.body.width]),
      height: clamp(figure.clientHeight - at.top, [1, at.body.height]),
    };
  }

  paint() {
    const { panel, at, options, cells } = this;
    if (!this.painted) return cells.replaceChildren(...cellRows(panel, at, options));
    const seen = this.seen();
    const { rows } = visiblePart(at, panel, seen);
    // Rows that are not mapped in time keep the picture of the last setting for a moment, unless another part was shown.
    const part = JSON.stringify(seen);
    if (part !== this.part) cells.width = 0;
    this.part = part;
    delete cells.dataset.whole;
    const from = this.paintRows(seen, rows[0], rows[1], options.whole ? Infinity : AT_FIRST);
    const rest = (function* (sheet) {
      for (let i = from; i < rows[1]; ) yield (i = sheet.paintRows(seen, i, rows[1], SLICE));
    })(this);
    const done = () => (cells.dataset.whole = "yes");
    if (from < rows[1]) return inSlices(`${this.prefix} cells`, rest, done);
    stopTask(`${this.prefix} cells`);
    done();
  }

  // Map and paint rows from one on, for a few milliseconds; returns the first one that is left.
  paintRows(seen, from, end, time) {
    const { panel, at, options } = this;
    const until = performance.now() + time;
    let to = from;
    while (to < end && (to === from || performance.now() < until)) panel.weights.row(to++);
    const finer = options.whole ? 3 : 1;
    paintCells(this.cells, panel, at, { ...options, window: seen, finer, band: [from, to] });
    return to;
  }

  scrolled() {
    if (this.painted) this.paint();
  }

  place(event) {
    const box = this.body.getBoundingClientRect();
    return this.at.place(event.clientX - box.left, event.clientY - box.top);
  }

  // Mark a row, and its cell if one is chosen.
  mark(row, column) {
    const { at, panel } = this;
    this.labels(this.rows, "data-label", row, () => rowLabel(panel, at, row));
    this.labels(this.columns, "data-column", column, () => columnLabel(panel, at, column));
    boxed(this.rowCursor, 0, row * at.tall, at.body.width, at.tall);
    this.cellCursor.hidden = column === null;
    if (column !== null) boxed(this.cellCursor, at.column(column) - at.left, row * at.tall, at.cell, at.tall);
  }

  // Emphasise one label; one that was left out for want of room is added over the others.
  labels(part, attribute, number, make) {
    part.querySelectorAll(".extra").forEach((old) => old.remove());
    part.querySelectorAll(".marked").forEach((old) => old.classList.remove("marked"));
    if (number === null) return;
    let label = part.querySelector(`[${attribute}="${number}"]`);
    if (label === null) {
      label = make();
      label.classList.add("extra");
      part.append(label);
    }
    label.classList.add("marked");
  }

  // Scroll a chosen row and column into view.
  reveal(row, column) {
    const { at, figure } = this;
    const shown = this.seen();
    const into = (start, length, from, size) =>
      start < from ? start : start + length > from + size ? start + length - size : from;
    const x = column === null ? shown.x : into(at.column(column) - at.left, at.cell, shown.x, shown.width);
    figure.scrollTo(x, into(row * at.tall, at.tall, shown.y, shown.height));
  }

  // "source words 1-110 of 300", if not all are visible.
  extent() {
    const { rows, columns } = visiblePart(this.at, this.panel, this.seen());
    const said = (name, [from, to], count) =>
      to - from < count ? [`${name} words ${from + 1}–${to} of ${count}`] : [];
    return [
      ...said("source", columns, this.panel.source.length),
      ...said("target", rows, this.panel.target.length),
    ].join(", ");
  }
}

function boxed(cursor, left, top, width, height) {
  Object.assign(cursor.style, {
    left: `${left}px`,
    top: `${top}px`,
    width: `${width}px`,
    height: `${height}px`,
  });
}

function corner() {
  const names = [node("span", { textContent: "attends to →" }), node("span", { textContent: "word ↓" })];
  return node("div", { className: "corner", "aria-hidden": "true" }, ...names);
}
