// The heat map of a small matrix as SVG, drawn as the figures are: exact zeros are grey, adjacent exactly equal
// weights are one rectangle without a border inside, and the members of an oscarmax cluster carry the same bullet.

// A colour on the palette's ramp, share in [0, 1].
function rampColour(ramp, share) {
  const place = clamp(share, [0, 1]) * (ramp.length - 1);
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

// A part of the drawing, in the coordinates of the whole.
function part(name, x, y, width, height, palette, ...children) {
  const box = { width, height, viewBox: `${x} ${y} ${width} ${height}` };
  const text = { "font-size": FONT.size, "font-family": FONT.family, fill: palette.ink };
  return element("svg", { class: name, xmlns: SVG, ...box, ...text }, ...children);
}

function columnLabels(panel, at) {
  const labels = [];
  for (let j = 0; j < panel.source.length; j += at.columnStep) labels.push(columnLabel(panel, at, j));
  return element("g", { "aria-hidden": "true" }, ...labels);
}

function columnLabel(panel, at, j) {
  const [x, y] = [at.column(j) + at.cell / 2 + (at.cell < ROOMY ? 4 : 0), at.top - 7];
  const turn = at.upright ? { "text-anchor": "middle" } : { transform: `rotate(-45 ${x} ${y})` };
  const room = at.upright ? 130 : Math.min(130, (at.width - x - 7) / 0.71);
  return element("text", { x, y, "data-column": j, ...turn }, isolated(fitted(panel.source[j], room)));
}

function rowLabels(panel, at) {
  const labels = [];
  // The first label is moved down to be whole; the second is left out if the first has come too near.
  const skipped = at.rowStep > 1 && (at.rowStep + 0.5) * at.tall < 6 + 11 ? at.rowStep : -1;
  for (let i = 0; i < panel.target.length; i += at.rowStep)
    if (i !== skipped) labels.push(rowLabel(panel, at, i));
  return element("g", { "aria-hidden": "true" }, ...labels);
}

function rowLabel(panel, at, i) {
  const middle = Math.max(at.row(i) + at.tall / 2, at.top + 6); // the first one is not cut
  const place = { x: at.left - 8, y: middle, "dominant-baseline": "central" };
  const text = isolated(fitted(panel.target[i], (at.left - 12) / 1.1));
  const small = at.tall < 16 ? { "font-size": 11 } : {};
  return element("text", { ...place, "text-anchor": "end", "data-label": i, ...small }, text);
}

// panel: {source, target, scores, weights, rtl}; scale: the weight of the darkest colour.
function cellRows(panel, at, { palette, scale, prefix }) {
  return panel.target.map((word, i) => {
    const y = panel.weights.row(i);
    const row = element("g", {
      role: "row",
      "data-row": i,
      id: `${prefix}-row${i}`,
      "aria-label": visible(word),
    });
    row.append(...rowRuns(panel, at, i, palette, scale));
    if (panel.weights.clustered) row.append(...rowBullets(y, at, i, palette, scale));
    row.append(...rowCells(panel, at, i, prefix));
    return row;
  });
}

// One rectangle per sequence of equal weights: no border can appear inside it.
function rowRuns(panel, at, i, palette, scale) {
  const gap = at.cell >= 8 ? 1 : at.cell / 8;
  const rim = at.tall >= 14 ? 1.5 : at.tall / 10;
  return runs(panel.weights.row(i), panel.scores[i])
    .filter((run) => !run.deleted)
    .map(({ start, stop, weight }) => {
      const x = Math.min(at.column(start), at.column(stop - 1));
      const box = {
        x: x + gap / 2,
        y: at.row(i) + rim,
        width: at.cell * (stop - start) - gap,
        height: at.tall - 2 * rim,
      };
      const fill = weight === 0 ? palette.zero : rampColour(palette.ramp, weight / scale);
      return element("rect", { class: "run", rx: Math.min(2, at.tall / 6), fill, ...box, "data-start": start, "data-stop": stop });
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

// The cells for screen readers.
function rowCells(panel, at, i, prefix) {
  return Array.from(panel.weights.row(i), (weight, j) => {
    const box = { x: at.column(j), y: at.row(i), width: at.cell, height: at.tall, fill: "transparent" };
    const said = isDeleted(panel.scores[i][j]) ? "masked" : formatWeight(weight, 4);
    return element("rect", {
      ...box,
      class: "cell",
      role: "gridcell",
      id: `${prefix}-${i}-${j}`,
      "aria-label": `${visible(panel.source[j])}: ${said}`,
      "data-row": i,
      "data-column": j,
      "data-weight": weight,
    });
  });
}
