// The heat map of one panel, drawn as the figures are: exact zeros are grey, adjacent exactly equal weights are
// one rectangle without a border inside, and the members of an oscarmax cluster carry the same bullet.

const SVG = "http://www.w3.org/2000/svg";
const FONT = { size: 13, family: "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif" };

// Text and attributes are set through the DOM, never parsed: any token is shown as it is.
function element(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const ruler = document.createElement("canvas").getContext("2d");
function textWidth(text) {
  ruler.font = `${FONT.size}px ${FONT.family}`;
  return ruler.measureText(text).width;
}

// A colour on the palette's ramp, share in [0, 1].
function rampColour(ramp, share) {
  const place = Math.min(share, 1) * (ramp.length - 1);
  const below = Math.min(Math.floor(place), ramp.length - 2);
  const channel = (colour, k) => parseInt(colour.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mixed = [0, 1, 2].map((k) => {
    const [a, b] = [channel(ramp[below], k), channel(ramp[below + 1], k)];
    return Math.round(a + (place - below) * (b - a))
      .toString(16)
      .padStart(2, "0");
  });
  return "#" + mixed.join("");
}

// The layout: cells fill the available width, between a minimum and a maximum. Labels are horizontal if they
// fit above their cells, and slanted to the right otherwise; the last one then extends by `reach` from the
// middle of its cell.
function layout(panel, width) {
  const d = panel.source.length;
  const sources = panel.source.map((token) => textWidth(shortened(token)));
  // The label of the chosen row is bold, a tenth wider.
  const left =
    Math.ceil(1.1 * Math.max(24, ...panel.target.map((token) => textWidth(shortened(token))))) + 12;
  const room = width - left - 6;
  const widest = Math.max(...sources);
  const upright = widest + 6 <= Math.min(room / d, 64);
  const reach = upright ? 0 : 0.71 * sources.at(panel.rtl ? 0 : -1) + 10;
  const cell = clamp(Math.min(room / d, (room - reach) / (d - 0.5)), [17, 64]);
  const tall = clamp(0.8 * cell, [22, 34]);
  const top = upright ? 26 : Math.ceil(0.71 * widest + 20);
  return {
    left,
    top,
    cell,
    tall,
    upright,
    width: left + Math.max(cell * d + 4, cell * (d - 0.5) + reach),
    height: top + tall * panel.target.length + 6,
    column: (j) => left + cell * (panel.rtl ? d - 1 - j : j),
    row: (i) => top + tall * i,
  };
}

// panel: {source, target, scores, weights, rtl, clustered}; scale: the weight of the darkest colour.
function heatmap(panel, { width, palette, scale, prefix }) {
  const at = layout(panel, width);
  const svg = element("svg", {
    xmlns: SVG,
    width: at.width,
    height: at.height,
    viewBox: `0 0 ${at.width} ${at.height}`,
    "font-size": FONT.size,
    "font-family": FONT.family,
    fill: palette.ink,
  });
  svg.append(columnLabels(panel, at));
  panel.weights.forEach((y, i) => {
    const row = element("g", { role: "row", "data-row": i });
    row.append(rowLabel(panel, at, i, prefix), ...rowRuns(panel, at, i, palette, scale));
    if (panel.clustered) row.append(...rowBullets(y, at, i, palette, scale));
    row.append(rowFrame(panel, at, i), ...rowCells(panel, at, i, prefix));
    svg.append(row);
  });
  return svg;
}

function columnLabels(panel, at) {
  const labels = panel.source.map((token, j) => {
    const [x, y] = [at.column(j) + at.cell / 2, at.top - 7];
    const turn = at.upright ? { "text-anchor": "middle" } : { transform: `rotate(-45 ${x} ${y})` };
    return element("text", { x, y, "data-column": j, ...turn }, isolated(shortened(token)));
  });
  return element("g", { "aria-hidden": "true" }, ...labels);
}

function rowLabel(panel, at, i, prefix) {
  const place = {
    x: at.left - 8,
    y: at.row(i) + at.tall / 2,
    "dominant-baseline": "central",
    "text-anchor": "end",
  };
  const label = element("text", { ...place, role: "rowheader", id: `${prefix}-row${i}` });
  label.append(isolated(shortened(panel.target[i])));
  return label;
}

// One rectangle per sequence of equal weights: no border can appear inside it.
function rowRuns(panel, at, i, palette, scale) {
  const [gap, y] = [1, panel.weights[i]];
  return runs(y, panel.scores[i])
    .filter((run) => !run.deleted)
    .map(({ start, stop, weight }) => {
      const x = Math.min(at.column(start), at.column(stop - 1));
      const box = {
        x: x + gap / 2,
        y: at.row(i) + 1.5,
        width: at.cell * (stop - start) - gap,
        height: at.tall - 3,
      };
      const fill = weight === 0 ? palette.zero : rampColour(palette.ramp, weight / scale);
      return element("rect", { class: "run", rx: 2, fill, ...box, "data-start": start, "data-stop": stop });
    });
}

// Each cluster has its own bullet: disc, ring, diamond, hollow diamond, square, hollow square, then again from
// the start.
function rowBullets(y, at, i, palette, scale) {
  return clusters(y).flatMap((cluster, j) => {
    if (cluster === null) return [];
    const colour = y[j] / scale > palette.turn ? palette.onHigh : palette.onLow;
    return [
      bullet(cluster, at.column(j) + at.cell / 2, at.row(i) + at.tall / 2, Math.min(4, at.cell / 5), colour),
    ];
  });
}

function bullet(cluster, x, y, r, colour) {
  const hollow = cluster % 2 === 1;
  const paint = {
    fill: hollow ? "none" : colour,
    stroke: colour,
    "stroke-width": 1.4,
    class: "bullet",
    "data-cluster": cluster,
  };
  const shape = Math.floor(cluster / 2) % 3;
  if (shape === 0) return element("circle", { cx: x, cy: y, r, ...paint });
  const turn = shape === 1 ? { transform: `rotate(45 ${x} ${y})` } : {};
  return element("rect", {
    x: x - 0.9 * r,
    y: y - 0.9 * r,
    width: 1.8 * r,
    height: 1.8 * r,
    ...turn,
    ...paint,
  });
}

// The style sheet outlines the chosen row with it.
function rowFrame(panel, at, i) {
  const width = at.cell * panel.source.length + 2;
  return element("rect", {
    class: "frame",
    fill: "none",
    x: at.left - 1,
    y: at.row(i),
    width,
    height: at.tall,
    rx: 3,
  });
}

// The targets of the pointer and of screen readers.
function rowCells(panel, at, i, prefix) {
  return panel.weights[i].map((weight, j) => {
    const deleted = panel.scores[i][j] === null;
    const box = { x: at.column(j), y: at.row(i), width: at.cell, height: at.tall, fill: "transparent" };
    const said = `${panel.source[j]}: ${deleted ? "masked" : formatWeight(weight, 4)}`;
    return element("rect", {
      ...box,
      class: "cell",
      role: "gridcell",
      id: `${prefix}-${i}-${j}`,
      "aria-label": said,
      "data-row": i,
      "data-column": j,
      "data-weight": weight,
    });
  });
}
