// The page: reads the data, keeps one state, and draws it. Every change goes through `update`.

const LISTED = 300; // examples listed at most; search narrows the list
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const examples = data.examples.map(prepared);
let state = parseState(location.hash, data.start);
let hover = null; // {panel, row, column} under the pointer: shown, but not stored
let frame = 0;
let written = 0;

const panels = [0, 1].map(
  (index) =>
    new Panel(
      index,
      (change) => update(change, index),
      (kind) => download(index, kind),
    ),
);
$("panels").append(...panels.map((panel) => panel.root));

// Searching for "elan" finds "Élan".
function folded(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

function prepared(example, index) {
  const words = [example.name, ...example.source, ...example.views.flatMap((view) => view.target)];
  return {
    ...example,
    index,
    haystack: folded(words.join(" ")),
    rtl: example.rtl ?? isRightToLeft(example.source),
  };
}

// Apply a change to a panel's setting (index given) or to the page.
function update(change, index = null) {
  const { row, ...setting } = change;
  if (index === null) Object.assign(state, change);
  else {
    if (row !== undefined) state.row = row;
    const view = setting.view === undefined ? null : examples[state.example].views[setting.view];
    Object.assign(state.panels[index], view?.mapping ? parseSetting(view.mapping, "softmax") : {}, setting);
  }
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

function contentOf(setting) {
  const example = examples[state.example];
  const view = example.views[Math.min(setting.view, example.views.length - 1)];
  const weights = view.scores.map((scores) => mapRow(scores, setting));
  const clustered = MAPPINGS[setting.mapping].clusters === true;
  return {
    source: example.source,
    target: view.target,
    scores: view.scores,
    weights,
    rtl: example.rtl,
    clustered,
  };
}

const shownPanels = () => (state.compare ? panels : panels.slice(0, 1));
const palette = () => data.palette[document.documentElement.dataset.theme];
const longest = () => Math.max(...shownPanels().map((panel) => panel.content.target.length));

function draw() {
  state.example = clamp(state.example, [0, examples.length - 1]);
  const example = examples[state.example];
  $("name").textContent = example.name;
  $("note").textContent = example.note ?? "";
  $("compare").checked = state.compare;
  panels[1].root.hidden = !state.compare;
  const contents = state.panels.map(contentOf);
  const scale =
    Math.max(...contents.slice(0, state.compare ? 2 : 1).map((c) => maximum(c.weights.map(maximum)))) || 1;
  $("scale").textContent = formatWeight(scale, 2);
  panels.forEach((panel, k) => {
    if (k === 0 || state.compare)
      panel.draw(state.panels[k], example.views, contents[k], { palette: palette(), scale });
    panel.scale = scale;
  });
  state.row = clamp(state.row, [0, longest() - 1]);
  drawList();
  mark();
  // Browsers reject too many history entries in a short time: write after the last change.
  clearTimeout(written);
  written = setTimeout(() => history.replaceState(null, "", formatState(state)), 200);
}

// Show the row under the pointer, else the chosen one.
function mark() {
  const { row, column } = hover ?? state;
  const named = shownPanels().map((panel, k) => ({ name: state.panels[k].mapping, content: panel.content }));
  shownPanels().forEach((panel) => panel.mark(row, column));
  const target = named[0].content.target;
  $("row-title").replaceChildren(
    `Target word ${row + 1} of ${longest()}: `,
    node("bdi", { textContent: target[Math.min(row, target.length - 1)] }),
  );
  const clamped = ({ content }) => Math.min(row, content.target.length - 1);
  $("summaries").replaceChildren(...named.map((one) => summaryNode(one.name, one.content, clamped(one))));
  $("numbers").replaceChildren(...numbersTable(named, row, column));
}

// Announce the row or the cell to screen readers after a step.
function step(rows, columns) {
  const d = examples[state.example].source.length;
  state.row = clamp(state.row + rows, [0, longest() - 1]);
  if (columns !== 0) state.column = state.column === null ? 0 : clamp(state.column + columns, [0, d - 1]);
  hover = null;
  update({});
  const { content } = panels[0];
  const row = Math.min(state.row, content.target.length - 1);
  const parts = summary(content, row)
    .parts.slice(0, 4)
    .map(({ words, sum }) => `${words} ${sum}`);
  $("announcement").textContent =
    `${content.target[row]}: ${summary(content, row).count}. ${parts.join("; ")}`;
}

function drawList() {
  const wanted = folded(state.search.trim());
  const found = examples.filter((example) => example.haystack.includes(wanted));
  $("found").textContent = `${found.length} of ${examples.length} example${examples.length === 1 ? "" : "s"}`;
  if (found.length > LISTED) $("found").textContent += `, the first ${LISTED} listed`;
  if ($("search").value !== state.search) $("search").value = state.search;
  const key = `${wanted} ${state.example}`;
  if ($("list").dataset.key === key) return;
  $("list").dataset.key = key;
  $("list").replaceChildren(...found.slice(0, LISTED).map(listItem));
  scrollToCurrent($("list"));
}

// Scroll only the list: scrollIntoView would also move the page.
function scrollToCurrent(list) {
  const current = list.querySelector("[aria-current]")?.parentElement;
  if (!current) return;
  const [top, bottom] = [
    current.offsetTop - list.offsetTop,
    current.offsetTop - list.offsetTop + current.offsetHeight,
  ];
  list.scrollTop = clamp(list.scrollTop, [bottom - list.clientHeight, top]);
}

function listItem(example) {
  const open = () => update({ example: example.index, row: 0, column: null });
  const button = node(
    "button",
    { type: "button", onclick: open },
    node("bdi", { textContent: example.name }),
  );
  if (example.index === state.example) button.setAttribute("aria-current", "true");
  return node("li", {}, button);
}

function download(index, kind) {
  const svg = drawing(panels[index].content, panels[index].scale, panels[index].width(), data.palette.light);
  const name = `attention-${state.example + 1}-${state.panels[index].mapping}`;
  return kind === "svg" ? saveSvg(svg, name) : savePng(svg, name);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
}

function listen() {
  const another = (by) =>
    update({ example: clamp(state.example + by, [0, examples.length - 1]), row: 0, column: null });
  // Following it as a link would replace the state in the address.
  $("skip").onclick = (event) => (event.preventDefault(), $("stage").focus());
  $("theme").onclick = () => (
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    update({})
  );
  $("search").oninput = (event) => update({ search: event.target.value });
  $("compare").onchange = (event) => update({ compare: event.target.checked });
  $("previous").onclick = () => another(-1);
  $("next").onclick = () => another(1);
  $("up").onclick = () => step(-1, 0);
  $("down").onclick = () => step(1, 0);
  addEventListener("hashchange", () => ((state = parseState(location.hash, data.start)), update({})));
  addEventListener("resize", () => update({}));
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey)
      return;
    const action = { "/": () => $("search").focus(), n: () => another(1), p: () => another(-1) }[event.key];
    if (action) event.preventDefault();
    action?.();
  });
  panels.forEach(listenPanel);
}

function listenPanel(panel, index) {
  const cell = (event) => event.target.closest(".cell");
  const placeOf = ({ dataset }) => ({ row: Number(dataset.row), column: Number(dataset.column) });
  panel.figure.onpointermove = (event) => {
    if (event.pointerType === "touch" || !cell(event)) return;
    hover = placeOf(cell(event));
    mark();
    showTip($("tip"), event, panel.content, state.panels[index].mapping, hover.row, hover.column);
  };
  panel.figure.onpointerleave = () => {
    $("tip").hidden = true;
    if (hover !== null) ((hover = null), mark());
  };
  panel.figure.onclick = (event) => cell(event) && update(placeOf(cell(event)));
  panel.figure.onkeydown = (event) => {
    const forward = panels[0].content.rtl ? -1 : 1;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -forward], ArrowRight: [0, forward] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    step(...moves[event.key]);
  };
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
listen();
draw();
