// The state of the page as one object, stored in the address: a link opens the view of its sender.

const LIMITS = { gamma: [0.05, 20], lam: [0, 2], p: [1.01, 2], alpha: [1, 2] };
const SHOWS = ["map", "lines", "heads"];
const SCALINGS = ["one", "both", "own"];

function clamp(value, [low, high]) {
  return Math.min(Math.max(value, low), high);
}

// "fusedmax,gamma=1,lam=0.1,view=0" as a panel's setting; missing or invalid values take the mapping's defaults.
function parseSetting(text, fallback) {
  const [given, ...pairs] = text.split(",");
  const mapping = given in MAPPINGS ? given : fallback;
  const setting = { mapping, view: 0, also: [], ...data.strengths[mapping] };
  for (const [name, value] of pairs.map((pair) => pair.split("="))) {
    if (name === "also") setting.also = (value ?? "").split(".").filter((view) => /^\d{1,6}$/.test(view)).map(Number);
    const number = Number(value);
    if (value === "" || !Number.isFinite(number)) continue;
    if (name in setting && name in LIMITS) setting[name] = clamp(number, LIMITS[name]);
    if (name === "view") setting.view = Math.max(0, Math.trunc(number));
  }
  return setting;
}

function formatSetting(setting) {
  const pairs = MAPPINGS[setting.mapping].parameters.map((name) => `${name}=${setting[name]}`);
  const also = setting.also?.length ? [`also=${setting.also.join(".")}`] : [];
  return [setting.mapping, ...pairs, `view=${setting.view}`, ...also].join(",");
}

function parseState(hash, start) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name) => Math.max(0, Math.trunc(Number(fields.get(name))) || 0);
  const oneOf = (name, values, fallback) =>
    values.includes(fields.get(name)) ? fields.get(name) : (fallback ?? values[0]);
  const panels = [
    parseSetting(fields.get("left") ?? start[0], "fusedmax"),
    parseSetting(fields.get("right") ?? start[1], "softmax"),
  ];
  // Two identical panels compare nothing.
  const differ = formatSetting(panels[0]) !== formatSetting(panels[1]);
  return {
    example: whole("example"),
    row: whole("row"),
    column: null,
    compare: fields.has("compare") ? fields.get("compare") !== "no" : differ,
    show: oneOf("show", SHOWS, data.show),
    scaling: oneOf("scale", SCALINGS),
    zoom: clamp(whole("zoom"), [0, 64]), // the width of a cell, 0 to fit
    search: fields.get("search") ?? "",
    panels,
  };
}

function formatState(state) {
  const fields = new URLSearchParams({ example: state.example, row: state.row });
  fields.set("left", formatSetting(state.panels[0]));
  fields.set("right", formatSetting(state.panels[1]));
  fields.set("compare", state.compare ? "yes" : "no");
  if (state.show !== data.show) fields.set("show", state.show);
  if (state.scaling !== SCALINGS[0]) fields.set("scale", state.scaling);
  if (state.zoom > 0) fields.set("zoom", state.zoom);
  if (state.search) fields.set("search", state.search);
  // Commas and equal signs are legal in a fragment, and readable.
  return "#" + fields.toString().replaceAll("%2C", ",").replaceAll("%3D", "=");
}

// Sliders change gamma by constant ratios, and lam in finer steps near 0.
const SCALES = {
  gamma: { to: (s) => 0.05 * 400 ** s, from: (gamma) => Math.log(gamma / 0.05) / Math.log(400) },
  lam: { to: (s) => 2 * s ** 3, from: (lam) => Math.cbrt(lam / 2) },
  p: { to: (s) => 1.01 + 0.99 * s, from: (p) => (p - 1.01) / 0.99 },
  alpha: { to: (s) => 1 + s, from: (alpha) => alpha - 1 },
};

// Three significant digits: the number field shows exactly the value that is used.
function fromSlider(name, position) {
  return clamp(Number(SCALES[name].to(position).toPrecision(3)), LIMITS[name]);
}
