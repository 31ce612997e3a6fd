// Download a heat map as a file. Files always use the light palette, as for print.

const PRINT_SCALE = 3; // pixels of a PNG per pixel of the page

function drawing(content, scale, width, palette) {
  const svg = heatmap(content, { width, palette, scale, prefix: "file" });
  svg.querySelectorAll(".cell, .frame").forEach((cell) => cell.remove());
  svg
    .querySelectorAll("*")
    .forEach((part) => ["id", "role", "aria-hidden"].forEach((name) => part.removeAttribute(name)));
  svg.prepend(element("rect", { width: "100%", height: "100%", fill: palette.paper }));
  return svg;
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
  const canvas = node("canvas", { width: PRINT_SCALE * image.width, height: PRINT_SCALE * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(blob, name + ".png"), "image/png");
}
