// Download a picture as a file. Files always use the light palette, as for print.

const PRINT_SCALE = 3; // pixels of a PNG per pixel of the page

function drawing(content, options) {
  const at = layout(content, options);
  const { palette } = options;
  const paper = element("rect", { width: "100%", height: "100%", fill: palette.paper });
  const painted = content.target.length * content.source.length > SMALL;
  const cells = painted
    ? [cellsImage(content, at, options)]
    : cellRows(content, at, { ...options, prefix: "file" });
  const svg = part(
    "file",
    0,
    0,
    at.width,
    at.height,
    palette,
    paper,
    columnLabels(content, at),
    rowLabels(content, at),
    ...cells,
  );
  svg.querySelectorAll(".cell").forEach((cell) => cell.remove());
  const unused = ["id", "role", "aria-hidden", "aria-label"];
  svg.querySelectorAll("*").forEach((one) => unused.forEach((name) => one.removeAttribute(name)));
  return svg;
}

// The cells of a large map as an image: as rectangles the file would have tens of megabytes.
function cellsImage(content, at, options) {
  const canvas = node("canvas");
  paintCells(canvas, content, at, {
    ...options,
    window: { x: 0, y: 0, ...at.body },
    finer: Math.min(3, 8000 / Math.max(at.body.width, at.body.height)),
  });
  return element("image", {
    x: at.left,
    y: at.top,
    ...at.body,
    href: canvas.toDataURL("image/png"),
    preserveAspectRatio: "none",
  });
}

function save(blob, name) {
  const link = node("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function saveSvg(svg, name) {
  save(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), name + ".svg");
}

async function savePng(svg, name) {
  const image = new Image();
  const text = new XMLSerializer().serializeToString(svg);
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  await image.decode();
  const scale = Math.min(PRINT_SCALE, 12000 / Math.max(image.width, image.height));
  const canvas = node("canvas", { width: scale * image.width, height: scale * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  saveCanvas(canvas, name);
}

function saveCanvas(canvas, name) {
  canvas.toBlob((blob) => save(blob, name + ".png"), "image/png");
}
