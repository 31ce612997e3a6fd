// One panel: a mapping, its strengths, and the heat map.

const SYMBOLS = { gamma: "γ", lam: "λ", p: "p", alpha: "α" };
const MEANINGS = {
  gamma: "strength of the regularizer",
  lam: "how strongly weights are fused",
  p: "the norm, 2 is sparsemax",
  alpha: "1 is softmax, 2 is sparsemax",
};

function node(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// `change(update)` applies an update to this panel's setting and draws everything again.
class Panel {
  constructor(index, change, download) {
    this.prefix = ["left", "right"][index];
    this.change = change;
    this.figure = node("div", {
      className: "figure",
      role: "grid",
      tabIndex: 0,
      id: `${this.prefix}-figure`,
    });
    this.mappings = this.choice("mapping", Object.keys(MAPPINGS), (value) => change({ mapping: value }));
    this.views = this.choice("scores", [], (value) => change({ view: Number(value), row: 0 }));
    this.sliders = Object.fromEntries(Object.keys(SYMBOLS).map((name) => [name, this.slider(name)]));
    const saves = ["SVG", "PNG"].map((kind) =>
      node("button", { type: "button", textContent: kind, onclick: () => download(kind.toLowerCase()) }),
    );
    saves.forEach((button) =>
      button.setAttribute("aria-label", `Download the ${this.prefix} heat map as ${button.textContent}`),
    );
    this.root = node(
      "article",
      { className: "panel", id: this.prefix },
      node(
        "div",
        { className: "choices" },
        this.mappings.root,
        this.views.root,
        node("span", { className: "saves" }, ...saves),
      ),
      node("div", { className: "sliders" }, ...Object.values(this.sliders).map((slider) => slider.root)),
      this.figure,
    );
  }

  choice(label, options, choose) {
    const id = `${this.prefix}-${label}`;
    const select = node("select", { id, onchange: (event) => choose(event.target.value) });
    const root = node(
      "span",
      { className: "choice" },
      node("label", { htmlFor: id, textContent: label }),
      select,
    );
    const fill = (names, values = names) =>
      select.replaceChildren(
        ...names.map((name, k) => node("option", { value: values[k], textContent: name })),
      );
    fill(options);
    return { root, select, fill };
  }

  slider(name) {
    const id = `${this.prefix}-${name}`;
    const [min, max] = LIMITS[name];
    const range = node("input", { type: "range", id, min: 0, max: 1, step: "any", title: MEANINGS[name] });
    const number = node("input", {
      type: "number",
      min,
      max,
      step: "any",
      "aria-label": `${name}, ${this.prefix}`,
    });
    range.oninput = () => this.change({ [name]: fromSlider(name, Number(range.value)) });
    range.onkeydown = (event) => this.step(event, name, Number(range.value));
    number.onchange = () => {
      const value = number.value === "" ? NaN : Number(number.value);
      this.change(Number.isFinite(value) ? { [name]: clamp(value, LIMITS[name]) } : {});
    };
    const label = node("label", {
      htmlFor: id,
      textContent: SYMBOLS[name],
      title: `${name}: ${MEANINGS[name]}`,
    });
    return { root: node("span", { className: "slider" }, label, range, number), range, number };
  }

  // Browsers differ in the keys of a slider with step "any".
  step(event, name, position) {
    const sizes = {
      ArrowRight: 0.02,
      ArrowUp: 0.02,
      ArrowLeft: -0.02,
      ArrowDown: -0.02,
      PageUp: 0.1,
      PageDown: -0.1,
    };
    if (!(event.key in sizes)) return;
    event.preventDefault();
    this.change({ [name]: fromSlider(name, clamp(position + sizes[event.key], [0, 1])) });
  }

  // Show a setting and its weights; `content` is the panel of heatmap.js.
  draw(setting, views, content, options) {
    this.content = content;
    this.mappings.select.value = setting.mapping;
    this.views.fill(
      views.map((view) => view.name),
      views.map((_, k) => k),
    );
    this.views.select.value = setting.view;
    this.views.root.hidden = views.length < 2;
    for (const [name, { root, range, number }] of Object.entries(this.sliders)) {
      root.hidden = !MAPPINGS[setting.mapping].parameters.includes(name);
      if (document.activeElement !== range || fromSlider(name, Number(range.value)) !== setting[name])
        range.value = SCALES[name].from(setting[name]);
      range.setAttribute("aria-valuetext", `${name} ${setting[name]}`);
      number.value = setting[name];
    }
    this.figure.setAttribute(
      "aria-label",
      `Weights of ${setting.mapping}; arrow keys step through the words`,
    );
    this.figure.replaceChildren(heatmap(content, { ...options, width: this.width(), prefix: this.prefix }));
  }

  width() {
    return this.figure.clientWidth || 480;
  }

  // Mark a row, and its cell if one is chosen.
  mark(row, column) {
    const clamped = Math.min(row, this.content.target.length - 1);
    this.figure.querySelectorAll(".marked").forEach((old) => old.classList.remove("marked"));
    this.figure.querySelector(`g[data-row="${clamped}"]`).classList.add("marked");
    const cell = column === null ? null : document.getElementById(`${this.prefix}-${clamped}-${column}`);
    cell?.classList.add("marked");
    this.figure.querySelector(`text[data-column="${column}"]`)?.classList.add("marked");
    this.figure.setAttribute("aria-activedescendant", cell?.id ?? `${this.prefix}-row${clamped}`);
  }
}
