// The geometry of a heat map: cells fill the available width and shrink to 4 pixels; below that the map scrolls.
// Labels that would overlap are left out; the word under the pointer is always labelled.

const FONT = { size: 13, family: "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif" };
const LEAST_CELL = 4; // pixels
const PAGE = 600; // pixels: the height of the rows on paper, so that a map is on one page
const CORNER = 66; // pixels: the width of the axes' names
const UPRIGHT = 38; // pixels: the height of the axes' names, next to labels that are not slanted
const ROOMY = 17; // from this width of cells on, every word has a label

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();
function textWidth(text) {
  if (!widths.has(text)) {
    ruler.font = `${FONT.size}px ${FONT.family}`;
    widths.set(text, ruler.measureText(text).width);
  }
  return widths.get(text);
}

// A token shortened to a width in pixels.
function fitted(token, width) {
  const text = shortened(token);
  if (textWidth(text) <= width) return text;
  const letters = [...text.replace("…", "")];
  while (letters.length > 1 && textWidth(letters.join("") + "…") > width) letters.pop();
  return letters.join("") + "…";
}

// `least` is the smallest cell, less than LEAST_CELL in print, in which nothing can scroll. `zoom` is the width of
// a cell, or 0. The label of the chosen row is bold, a tenth wider; slanted labels extend by `reach` beyond the
// last column.
function layout(panel, { width, zoom = 0, least = LEAST_CELL, whole = false }) {
  const [n, d] = [panel.target.length, panel.source.length];
  const widest = (tokens) => tokens.reduce((most, token) => Math.max(most, textWidth(shortened(token))), 24);
  const left = Math.ceil(Math.max(Math.min(1.1 * widest(panel.target), 0.34 * width), CORNER)) + 12;
  const room = width - left - 6;
  const across = widest(panel.source);
  const upright = across + 6 <= Math.min(zoom || room / d, 64);
  const reach = upright ? 0 : Math.min(labelReach(panel, zoom || Math.max(room / d, least)), 0.25 * width);
  const fit = Math.min(room / d, (room - reach) / Math.max(d - 0.5, 0.5));
  const cell = zoom || clamp(fit, [least, 64]);
  // The last labels are shortened if the cells fit but their labels do not.
  const overhang = cell * d <= room ? Math.min(reach, room - cell * (d - 0.5)) : reach;
  const tall = whole ? Math.min(rowHeight(cell, n, least), PAGE / n) : rowHeight(cell, n, least);
  const top = upright ? UPRIGHT : Math.ceil(0.71 * Math.min(across, 130) + 20);
  return {
    left,
    top,
    cell,
    tall,
    upright,
    body: { width: cell * d, height: tall * n },
    width: left + Math.max(cell * d + 4, cell * (d - 0.5) + overhang),
    height: top + tall * n + 6,
    columnStep: upright ? 1 : Math.max(1, Math.ceil(ROOMY / cell - 0.01)),
    rowStep: Math.max(1, Math.ceil(12 / tall)),
    column: (j) => left + cell * (panel.rtl ? d - 1 - j : j),
    row: (i) => top + tall * i,
    place: (x, y) => {
      const j = Math.floor(x / cell);
      const [row, column] = [Math.floor(y / tall), panel.rtl ? d - 1 - j : j];
      return row >= 0 && row < n && j >= 0 && j < d ? { row, column } : null;
    },
  };
}

// How far the slanted labels extend to the right of the middle of the last column.
function labelReach(panel, cell) {
  const tokens = panel.rtl ? panel.source.slice(0, 60).reverse() : panel.source.slice(-60);
  const reaches = tokens.map(
    (token, k) => 0.71 * Math.min(textWidth(shortened(token)), 130) + 12 - cell * (tokens.length - 1 - k),
  );
  return Math.max(0, ...reaches);
}

// Rows of few words stay high enough for their labels; those of long texts are as high as the cells are wide.
function rowHeight(cell, n, least) {
  if (cell >= ROOMY) return clamp(0.8 * cell, [22, 34]);
  return n <= 40 ? 14 : clamp(cell, [least, 14]);
}

// The rows and columns of the body that a window on it shows.
function visiblePart(at, panel, { x, y, width, height }) {
  const [n, d] = [panel.target.length, panel.source.length];
  const columns = [Math.floor(x / at.cell), Math.ceil((x + width) / at.cell)].map((j) => clamp(j, [0, d]));
  const rows = [Math.floor(y / at.tall), Math.ceil((y + height) / at.tall)].map((i) => clamp(i, [0, n]));
  return { rows, columns: panel.rtl ? [d - columns[1], d - columns[0]] : columns };
}
