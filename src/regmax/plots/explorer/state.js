// The state of the page as one object, stored in the address: a link opens the view of its sender.

const DEFAULTS = { gamma: 1, lam: 0.1, p: 1.5, alpha: 1.5, view: 0 };
const LIMITS = { gamma: [0.05, 20], lam: [0, 2], p: [1.01, 2], alpha: [1, 2] };

function clamp(value, [low, high]) {
  return Math.min(Math.max(value, low), high);
}

// "fusedmax,gamma=1,lam=0.1,view=0" as a panel's setting; missing or invalid values take their defaults.
function parseSetting(text, fallback) {
  const [mapping, ...pairs] = text.split(",");
  const setting = { ...DEFAULTS, mapping: mapping in MAPPINGS ? mapping : fallback };
  for (const [name, value] of pairs.map((pair) => pair.split("="))) {
    const number = Number(value);
    if (value === "" || !Number.isFinite(number)) continue;
    if (name in LIMITS) setting[name] = clamp(number, LIMITS[name]);
    if (name === "view") setting.view = Math.max(0, Math.trunc(number));
  }
  return setting;
}

function formatSetting(setting) {
  const pairs = MAPPINGS[setting.mapping].parameters.map((name) => `${name}=${setting[name]}`);
  return [setting.mapping, ...pairs, `view=${setting.view}`].join(",");
}

function parseState(hash, start) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name) => Math.max(0, Math.trunc(Number(fields.get(name))) || 0);
  return {
    example: whole("example"),
    row: whole("row"),
    column: null,
    compare: fields.get("compare") !== "no",
    search: fields.get("search") ?? "",
    panels: [
      parseSetting(fields.get("left") ?? start[0], "fusedmax"),
      parseSetting(fields.get("right") ?? start[1], "softmax"),
    ],
  };
}

function formatState(state) {
  const fields = new URLSearchParams({ example: state.example, row: state.row });
  fields.set("left", formatSetting(state.panels[0]));
  fields.set("right", formatSetting(state.panels[1]));
  if (!state.compare) fields.set("compare", "no");
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
