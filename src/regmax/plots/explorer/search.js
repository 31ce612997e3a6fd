// Search over all examples: which contain a word, and what it attends to in all of them together.

const MOST_ROWS = 20000; // rows of weights that a search maps at most
const TOP = 10; // words listed

// Searching for "elan" finds "Élan".
function folded(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

const bare = (token) => folded(token.replace("\u203f", "").trim());

// "#3" is the third target word of every example, "#-1" the last one.
function parseQuery(text) {
  const position = text.trim().match(/^#(-?\d+)$/);
  return position ? { position: Number(position[1]) } : { word: bare(text) };
}

// The query in the title of its result.
function queryNodes({ position }, text) {
  if (position === undefined) return ["the word “", node("bdi", { textContent: text }), "”"];
  return [position < 0 ? `word number ${-position} from the end` : `word number ${position}`];
}

function rowsOf(query, target) {
  if (query.position === undefined)
    return target.flatMap((token, i) => (bare(token) === query.word ? [i] : []));
  const row = query.position > 0 ? query.position - 1 : target.length + query.position;
  return query.position !== 0 && row >= 0 && row < target.length ? [row] : [];
}

// Collect, over all examples, the weights of the rows that a query names, by source word and by distance.
function* collected(query, setting, examples, result) {
  for (const example of examples) {
    const view = example.views[clampedView(example, setting)];
    const self =
      view.target.length === example.source.length && view.target.every((t, i) => t === example.source[i]);
    for (const i of rowsOf(query, view.target)) {
      if (result.rows >= MOST_ROWS) return;
      const scores = scoresOf(view)[i];
      addRow(result, mapRow(scores, settingOf(view, setting)), scores, example, i, self);
      yield;
    }
  }
}

function addRow(result, y, scores, example, i, self) {
  result.rows += 1;
  result.support += supportSize(y);
  const parts = rowCounts(y, scores, false).parts;
  result.segments += parts;
  y.forEach((weight, j) => {
    if (weight === 0) return;
    const name = visible(example.source[j]);
    const one = result.words.get(name) ?? { sum: 0, count: 0, best: 0 };
    one.sum += weight;
    one.count += 1;
    if (weight > one.best) Object.assign(one, { best: weight, example: example.index, row: i, column: j });
    result.words.set(name, one);
    if (self) result.distances.set(j - i, (result.distances.get(j - i) ?? 0) + weight);
  });
}

const emptyResult = () => ({ rows: 0, support: 0, segments: 0, words: new Map(), distances: new Map() });

// One panel's result: the words with the largest mean weight; a click opens the example with the largest weight.
function resultNode(name, result, open) {
  const { rows, support, segments, words, distances } = result;
  const title = node("p", {}, node("strong", { textContent: name }));
  if (rows === 0) return node("div", { className: "result" }, title, " no target word matches");
  const average = (sum) => (sum / rows).toFixed(1);
  title.append(
    ` ${rows} occurrence${rows === 1 ? "" : "s"}, on average ${average(support)} words in ${average(segments)} segments`,
  );
  const top = [...words].sort(([, a], [, b]) => b.sum - a.sum).slice(0, TOP);
  const lines = top.map(([word, { sum, count, example, row, column }]) => {
    const button = node(
      "button",
      { type: "button", onclick: () => open(example, row, column) },
      node("bdi", { textContent: word }),
    );
    const share = sum / rows;
    return node(
      "tr",
      {},
      node("th", { scope: "row" }, button),
      node("td", {}, weightBar(share)),
      node("td", { className: "score", textContent: count }),
    );
  });
  const head = ["attends to", "mean weight", "times"].map((text) =>
    node("th", { textContent: text, scope: "col" }),
  );
  const table = node("table", {}, node("thead", {}, node("tr", {}, ...head)), node("tbody", {}, ...lines));
  return node("div", { className: "result" }, title, table, ...distanceNode(distances, rows));
}

// In self-attention also how far away: 0 is the word itself, -1 the one before it.
function distanceNode(distances, rows) {
  const top = [...distances]
    .filter(([, sum]) => sum / rows >= 0.005)
    .sort(([, a], [, b]) => b - a)
    .slice(0, 5);
  if (top.length === 0) return [];
  const said = top.map(
    ([distance, sum]) => `${distance > 0 ? "+" : ""}${distance}: ${formatWeight(sum / rows, 2)}`,
  );
  return [node("p", { className: "distances", textContent: `by distance in words: ${said.join(", ")}` })];
}
