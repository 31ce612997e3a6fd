// Heat maps of large matrices and thumbnails of heads, painted on a canvas: as many elements would be too slow.

const SMALL = 600; // cells: with more, a heat map is painted
const PLAIN = 12000; // visible cells: with more, each is one pixel of an image that is enlarged, without gaps
const SHADES = 256;

// The colours of a palette as strings and as pixels.
const inks = new Map();
function inkOf(palette) {
  if (!inks.has(palette)) {
    const ramp = Array.from({ length: SHADES }, (_, k) => rampColour(palette.ramp, k / (SHADES - 1)));
    const pixel = (colour) => {
      const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
      return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian
    };
    inks.set(palette, { ramp, pixels: Uint32Array.from(ramp, pixel), zero: pixel(palette.zero) });
  }
  return inks.get(palette);
}

const shade = (weight, scale) => Math.min(SHADES - 1, Math.round((weight / scale) * (SHADES - 1)));

// Size a canvas in the page's pixels, with the screen's resolution or a finer one.
function sized(canvas, width, height, finer = 1) {
  const ratio = Math.max(globalThis.devicePixelRatio || 1, finer);
  const [w, h] = [width, height].map((length) => Math.max(1, Math.round(length * ratio)));
  if (canvas.width !== w || canvas.height !== h) {
    Object.assign(canvas, { width: w, height: h });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Paint a band of the body in the window {x, y, width, height}: rows [from, to), by default all that it shows.
function paintCells(canvas, panel, at, { palette, scale, window: seen, finer, band, whole }) {
  const context = sized(canvas, seen.width, seen.height, finer);
  const { rows, columns } = visiblePart(at, panel, seen);
  const count = (rows[1] - rows[0]) * (columns[1] - columns[0]);
  const [from, to] = band ?? rows;
  context.translate(-seen.x - at.left, -seen.y - at.top);
  // Chromium nests the printed page one level deeper for each area that is cleared: see heads.js. On paper the canvas is new.
  if (!whole) context.clearRect(at.left, at.row(from), at.body.width, at.tall * (to - from));
  if (count > PLAIN) paintImage(context, panel, at, [from, to], columns, palette, scale);
  else paintRuns(context, panel, at, [from, to], columns, palette, scale);
}

function paintRuns(context, panel, at, rows, columns, palette, scale) {
  const { ramp } = inkOf(palette);
  const gap = at.cell >= 8 ? 1 : at.cell / 8;
  const rim = at.tall >= 8 ? 0.75 : at.tall / 16;
  for (let i = rows[0]; i < rows[1]; ++i) {
    const y = panel.weights.row(i);
    for (const { start, stop, weight, deleted } of runs(y, panel.scores[i])) {
      if (deleted || stop <= columns[0] || start >= columns[1]) continue;
      const x = Math.min(at.column(start), at.column(stop - 1));
      context.fillStyle = weight === 0 ? palette.zero : ramp[shade(weight, scale)];
      context.fillRect(x + gap / 2, at.row(i) + rim, at.cell * (stop - start) - gap, at.tall - 2 * rim);
    }
    if (panel.weights.clustered && at.cell >= 8) paintBullets(context, y, at, i, palette, scale);
  }
}

function paintBullets(context, y, at, i, palette, scale) {
  const r = Math.min(4, at.cell / 5, at.tall / 5);
  clusters(y).forEach((cluster, j) => {
    if (cluster === null) return;
    const [x, middle] = [at.column(j) + at.cell / 2, at.row(i) + at.tall / 2];
    const shape = Math.floor(cluster / 2) % 3;
    context.beginPath();
    if (shape === 0) context.arc(x, middle, r, 0, 2 * Math.PI);
    else if (shape === 2) context.rect(x - 0.9 * r, middle - 0.9 * r, 1.8 * r, 1.8 * r);
    else
      [
        [0, -1],
        [1, 0],
        [0, 1],
        [-1, 0],
      ].forEach(([dx, dy]) => context.lineTo(x + 1.2 * r * dx, middle + 1.2 * r * dy));
    context.closePath();
    const colour = y[j] / scale > palette.turn ? palette.onHigh : palette.onLow;
    context.fillStyle = context.strokeStyle = colour;
    if (cluster % 2 === 1) context.stroke();
    else context.fill();
  });
}

function paintImage(context, panel, at, rows, columns, palette, scale) {
  const [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < height; ++i)
    paintPixels(
      pixels.subarray(i * width, (i + 1) * width),
      panel.weights.row(rows[0] + i),
      panel.scores[rows[0] + i],
      {
        from: columns[0],
        rtl: panel.rtl,
        palette,
        scale,
      },
    );
  const x = Math.min(at.column(columns[0]), at.column(columns[1] - 1));
  context.imageSmoothingEnabled = false;
  context.drawImage(bitmap(image), x, at.row(rows[0]), at.cell * width, at.tall * height);
}

// One row of pixels; deleted positions stay transparent.
function paintPixels(pixels, y, scores, { from = 0, rtl = false, palette, scale }) {
  const ink = inkOf(palette);
  for (let k = 0; k < pixels.length; ++k) {
    const j = rtl ? from + pixels.length - 1 - k : from + k;
    if (!isDeleted(scores[j])) pixels[k] = y[j] === 0 ? ink.zero : ink.pixels[shade(y[j], scale)];
  }
}

// The image as a canvas, always the same one: a new one costs more than its pixels.
const copied = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function bitmap(image) {
  const { canvas } = copied;
  if (canvas.width !== image.width || canvas.height !== image.height)
    Object.assign(canvas, { width: image.width, height: image.height });
  copied.putImageData(image, 0, 0);
  return canvas;
}
