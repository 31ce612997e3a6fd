// The page: keeps one state, and draws it. Every change goes through `update`.

const LISTED = 300; // examples listed at most; search narrows the list
const PRINTED = 660; // pixels: the width of a heat map on paper
const examples = data.examples.map(prepared);
let state = parseState(location.hash, data.start);
let hover = null; // {row, column} under the pointer: shown, but not stored
let allWords = false; // the table lists every word of the chosen row
let frame = 0;
let written = 0;
let printing = false;
let following = false; // a panel is scrolled because the other one is

const panels = [0, 1].map(
  (index) =>
    new Panel(index, {
      change: (change) => update(change, index),
      download: (kind) => download(index, kind),
      open: (view) => openHead(view, index),
      scrolled: () => follow(index),
    }),
);
$("panels").append(...panels.map((panel) => panel.root));

function prepared(example, index) {
  const words = [example.name, ...example.source, ...example.views.flatMap((view) => view.target)];
  return { ...example, index, haystack: folded(words.join(" ")), rtl: isRightToLeft(example.source) };
}

// Apply a change to a panel's setting (index given) or to the page.
function update(change, index = null) {
  const { row, ...setting } = change;
  if (index === null) Object.assign(state, change);
  else {
    if (row !== undefined) state.row = row;
    state.panels[index] = changed(state.panels[index], setting);
  }
  if ("example" in change || "row" in change) allWords = false;
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

// A new mapping starts with its defaults, a view with the mapping that it was trained with if that is another one, and
// a model with its view of the same number.
function changed(before, setting) {
  const example = examples[state.example];
  if (setting.mapping !== undefined)
    return { ...parseSetting(setting.mapping, "softmax"), view: before.view, also: before.also };
  if (setting.model !== undefined) {
    const rank = modelViews(example, before).findIndex(
      ({ number }) => number === clampedView(example, before),
    );
    const first = { view: example.views.findIndex((view) => view.model === setting.model) };
    return changed(before, { view: viewAt(example, first, rank) });
  }
  const view = setting.view === undefined ? null : example.views[setting.view];
  const other = view?.mapping && view.mapping !== example.views[clampedView(example, before)].mapping;
  const also = view ? { also: [] } : {};
  return { ...before, ...(other ? parseSetting(view.mapping, "softmax") : {}), ...also, ...setting };
}

// The number of the view that has this rank in the panel's model, or its last one.
function viewAt(example, setting, rank) {
  const mine = modelViews(example, setting);
  return mine[Math.min(rank, mine.length - 1)].number;
}

// Open a head in both panels: each keeps its model and mapping. Of models that were trained with different mappings,
// one is opened in its panel, under its own.
function openHead(view, index) {
  const example = examples[state.example];
  const mine = modelViews(example, { view });
  const rank = mine.findIndex(({ number }) => number === view);
  if (ownMappings(mine)) state.panels[index] = changed(state.panels[index], { view });
  else
    state.panels.forEach((panel, k) =>
      Object.assign(panel, { view: k === index ? view : viewAt(example, panel, rank), also: [] }),
    );
  update({ show: "map", row: 0, column: null });
}

function contentOf(setting) {
  const example = examples[state.example];
  const view = example.views[clampedView(example, setting)];
  const weights = weightsOf(view, setting);
  const shown = { source: example.source, target: view.target, scores: weights.scores, weights, rtl: example.rtl };
  return { ...shown, setting, heads: headsOf(example, setting) };
}

const shownPanels = () => (state.compare ? panels : panels.slice(0, 1));
const palette = () => data.palette[document.documentElement.dataset.theme];
const longest = () => Math.max(...shownPanels().map((panel) => panel.content.target.length));

function draw() {
  state.example = clamp(state.example, [0, examples.length - 1]);
  const example = examples[state.example];
  $("name").textContent = $("name").title = example.name;
  $("note").textContent = example.note ?? "";
  $("compare").checked = state.compare;
  $("scaling").value = state.scaling;
  for (const show of SHOWS) $(`show-${show}`).setAttribute("aria-pressed", state.show === show);
  $("show-heads").hidden = examples.every(({ views }) => views.length < 3);
  $("zooms").hidden = state.show !== "map";
  panels[1].root.hidden = !state.compare;
  document.body.dataset.show = state.show;
  drawPanels(example);
  state.row = clamp(state.row, [0, longest() - 1]);
  drawList();
  drawResults();
  mark();
  // Browsers reject too many history entries in a short time: write after the last change.
  clearTimeout(written);
  written = setTimeout(writeAddress, 200);
}

// A notebook's frame has no address.
function writeAddress() {
  if (location.protocol !== "about:") history.replaceState(null, "", formatState(state));
}

function drawPanels(example) {
  const contents = state.panels.map(contentOf);
  const common = { show: state.show, scaling: state.scaling, zoom: state.zoom, palette: palette() };
  const paper = printing ? { whole: true, paper: PRINTED, zoom: 0, least: 0.4 } : {};
  const scales = scalesOf(contents.slice(0, state.compare ? 2 : 1));
  $("scale").textContent = state.scaling === "own" ? "each map's largest weight" : formatWeight(scales[0], 2);
  shownPanels().forEach((panel, k) => {
    panel.draw(state.panels[k], example, contents[k], { ...common, ...paper, scale: scales[k] });
  });
}

// The weight of the darkest colour. The largest weight of a long text is known when all rows are mapped: until
// then, and for a fixed scale, it is that of the rows so far.
function scalesOf(contents) {
  if (state.scaling === "one" || state.show === "heads") return contents.map(() => 1);
  contents.forEach(({ weights }) => {
    for (let i = 0; i < weights.scores.length && i * weights.scores[0].length < 20000; ++i) weights.row(i);
  });
  const own = contents.map(({ weights }) => weights.largest || 1);
  const later = () => contents.some(({ weights }, k) => (weights.largest || 1) > own[k]) && update({});
  const unknown = contents.filter(({ weights }) => weights.known.includes(undefined));
  if (unknown.length > 0) inSlices("scale", largestOf(unknown), later);
  return state.scaling === "own" ? own : own.map(() => Math.max(...own));
}

function* largestOf(contents) {
  for (const { weights } of contents) for (let i = 0; i < weights.scores.length; ++i) yield weights.row(i);
}

// Show the row under the pointer, else the chosen one.
function mark() {
  const { row, column } = hover ?? state;
  const named = shownPanels().map((panel, k) => ({ name: panelName(state.panels[k]), content: panel.content }));
  shownPanels().forEach((panel) => panel.mark(row, column, hover !== null));
  const target = named[0].content.target;
  $("row-title").replaceChildren(
    `Target word ${row + 1} of ${longest()}: `,
    node("bdi", { textContent: visible(target[Math.min(row, target.length - 1)]) }),
  );
  const clamped = ({ content }) => Math.min(row, content.target.length - 1);
  $("summaries").replaceChildren(...named.map((one) => summaryNode(one.name, one.content, clamped(one))));
  const showAll = () => ((allWords = true), mark());
  $("numbers").replaceChildren(...numbersTable(named, row, column, allWords && hover === null, showAll));
}

// Announce the row or the cell to screen readers after a step.
function step(rows, columns) {
  const d = examples[state.example].source.length;
  state.row = clamp(state.row + rows, [0, longest() - 1]);
  if (columns !== 0) state.column = state.column === null ? 0 : clamp(state.column + columns, [0, d - 1]);
  hover = null;
  allWords = false;
  mark();
  update({});
  const { content } = panels[0];
  const row = Math.min(state.row, content.target.length - 1);
  if (state.show !== "heads") panels[0].shown.reveal(row, state.column);
  const parts = summary(content, row)
    .parts.slice(0, 4)
    .map(({ words, sum }) => `${words} ${sum}`);
  $("announcement").textContent =
    `${content.target[row]}: ${summary(content, row).count}. ${parts.join("; ")}`;
}

// The other panel shows the same words: scroll it as far, counted in cells.
function follow(index) {
  if (following) return (following = false);
  if (!state.compare || state.show === "heads") return;
  const [from, to] = [panels[index], panels[1 - index]];
  const [a, b] = [from.shown.at, to.shown.at];
  const ratios = state.show === "map" ? [b.cell / a.cell, b.tall / a.tall] : [1, b.pitch / a.pitch];
  const [x, y] = [to.figure.scrollLeft, to.figure.scrollTop];
  following = true;
  to.figure.scrollTo(from.figure.scrollLeft * ratios[0], from.figure.scrollTop * ratios[1]);
  // No event follows if it was there already, or at its end.
  if (to.figure.scrollLeft === x && to.figure.scrollTop === y) following = false;
}

function drawList() {
  const query = state.search.trim();
  const wanted = query.startsWith("#") ? "" : folded(query);
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

// What the searched word attends to in all examples, under both settings.
function drawResults() {
  const text = state.search.trim();
  $("results").hidden = $("to-results").hidden = text === "";
  if (text === "") return stopTask("results");
  const query = parseQuery(text);
  $("results-title").replaceChildren("What ", ...queryNodes(query, text), " attends to, in all examples");
  const settings = state.panels.slice(0, state.compare ? 2 : 1);
  const results = settings.map(emptyResult);
  const open = (example, row, column) => update({ example, row, column });
  const steps = (function* () {
    for (const [k, setting] of settings.entries()) yield* collected(query, setting, examples, results[k]);
  })();
  if ($("results").dataset.query !== text) $("results-list").textContent = "searching …";
  const run = printing ? atOnce : inSlices;
  run("results", steps, () => {
    $("results-list").replaceChildren(
      ...settings.map((setting, k) => resultNode(resultName(setting), results[k], open)),
    );
    $("results").dataset.query = text;
  });
}

// The mapping, with the model and the head if there are several.
function resultName(setting) {
  const example = examples[state.example];
  const { model, name } = example.views[clampedView(example, setting)];
  return named(setting, [model, example.views.length > 1 ? name : ""].filter(Boolean).join(", "));
}

// The name of a run begins with its mapping, which is not repeated unless another one is set.
function named(setting, name) {
  const example = examples[state.example];
  const own = example.views[clampedView(example, setting)].mapping;
  const bare = (one) => formatSetting({ ...one, view: 0, also: [] });
  const unchanged = own && name.startsWith(setting.mapping) && bare(parseSetting(own, "softmax")) === bare(setting);
  return unchanged ? name : [setting.mapping, name].filter(Boolean).join(", ");
}

// The mapping, with what else differs between the panels: the models, or the heads.
function panelName(setting) {
  const example = examples[state.example];
  const views = state.panels.map((one) => example.views[clampedView(example, one)]);
  const { model, name } = example.views[clampedView(example, setting)];
  if (!state.compare || views[0] === views[1]) return setting.mapping;
  return named(setting, views[0].model === views[1].model ? name : model);
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
    { type: "button", onclick: open, title: example.name },
    node("bdi", { textContent: example.name }),
  );
  if (example.index === state.example) button.setAttribute("aria-current", "true");
  return node("li", {}, button);
}

function download(index, kind) {
  const panel = panels[index];
  const name = `attention-${state.example + 1}-${state.panels[index].mapping}`;
  if (state.show === "lines") return saveCanvas(panel.shown.canvas, name);
  const light = { palette: data.palette.light, scale: panel.scale, width: panel.width, zoom: state.zoom };
  const svg = drawing(panel.content, light);
  return kind === "svg" ? saveSvg(svg, name) : savePng(svg, name);
}
