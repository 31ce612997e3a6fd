// The details of one target word: its support, its segments or clusters, and its weights, largest first.

const LISTED_PARTS = 6; // segments or clusters in the summary
const LISTED_WEIGHTS = 24; // words in the table; the others are counted, and shown on demand

// "3 of 14 words have weight, in 2 segments", and the words of each.
function summary(content, row) {
  const [y, scores] = [content.weights.row(row), content.scores[row]];
  const { clustered } = content.weights;
  const found = groups(y, scores, clustered);
  const kept = scores.reduce((count, score) => count + !isDeleted(score), 0);
  const kind = clustered ? "cluster" : "segment";
  const parts = found.slice(0, LISTED_PARTS).map(({ weight, places }) => ({
    words: phrase(content, places),
    sum: places.length > 1 ? `${places.length} × ${formatWeight(weight)}` : formatWeight(weight),
  }));
  const count = `${supportSize(y)} of ${kept} words, ${found.length} ${kind}${found.length === 1 ? "" : "s"}`;
  return { count, parts, more: found.length - parts.length, entropy: `entropy ${entropy(y).toFixed(2)}` };
}

// The words of a group: adjacent words are separated by a space, subwords of one word by nothing, and
// non-adjacent words by a gap. A long group shows its first words.
function phrase(content, places) {
  const words = places
    .slice(0, 12)
    .map((place, k) => (k > 0 && place !== places[k - 1] + 1 ? "… " : "") + visible(content.source[place]));
  if (places.length > 12) words.push("…");
  return words.join(" ").replaceAll(" \u203f", "");
}

function summaryNode(name, content, row) {
  const { count, parts, more, entropy } = summary(content, row);
  const shown = parts.map(({ words, sum }) =>
    node("li", {}, node("bdi", { className: "words", textContent: words }), ` ${sum}`),
  );
  if (more > 0) shown.push(node("li", { textContent: `and ${more} more` }));
  return node(
    "div",
    { className: "summary" },
    node("p", {}, node("strong", { textContent: name }), ` ${count}, ${entropy}`),
    node("ul", {}, ...shown),
  );
}

// The scores, only once if both panels map the same ones, and one column of weights per panel; recorded weights have
// no scores. Words without weight
// in any panel are counted in the last line; `all` lists every word.
function numbersTable(panels, row, column, all, showAll) {
  const own = panels.map(({ name, content }) => {
    const clamped = Math.min(row, content.target.length - 1);
    const recorded = content.setting.mapping === RECORDED;
    return { name, recorded, scores: content.scores[clamped], y: content.weights.row(clamped) };
  });
  const shared = own.every(({ scores }) => scores === own[0].scores);
  const { source } = panels[0].content;
  const first = own.findIndex(({ recorded }) => !recorded);
  own.forEach((one, k) => (one.scored = k === first || (!shared && !one.recorded)));
  const heads = own.flatMap(({ name, scored }) => (scored ? ["score", name] : [name]));
  const head = node(
    "tr",
    {},
    ...["attends to", ...heads].map((text) => node("th", { textContent: text, scope: "col" })),
  );
  const order = source.map((_, j) => j);
  const byWeight = (a, b) => own[0].y[b] - own[0].y[a] || (own[1] ? own[1].y[b] - own[1].y[a] : 0) || a - b;
  const weighty = order.filter((j) => own.some(({ y }) => y[j] > 0)).sort(byWeight);
  const listed = all ? order.sort(byWeight) : weighty.slice(0, LISTED_WEIGHTS);
  if (!all && column !== null && !listed.includes(column)) listed.push(column);
  const lines = listed.map((j) => numbersLine(source[j], j, own, j === column));
  const rest = order.length - listed.length;
  if (rest > 0) {
    const zero = order.length - weighty.length;
    const said = `${rest} more words${zero > 0 ? `, ${zero} with weight exactly 0` : ""}`;
    const button = node("button", { type: "button", id: "all-words", textContent: said, onclick: showAll });
    lines.push(node("tr", {}, node("td", { colSpan: heads.length + 1 }, button)));
  }
  return [node("thead", {}, head), node("tbody", {}, ...lines)];
}

const rounded = (score) => score.toFixed(2).replace(/^-(0\.00)$/, "$1");

function numbersLine(token, j, own, marked) {
  const line = node("tr", { className: marked ? "marked" : "" });
  line.append(node("th", { scope: "row" }, node("bdi", { textContent: visible(token) })));
  own.forEach(({ scores, y, scored }) => {
    const deleted = isDeleted(scores[j]);
    if (scored)
      line.append(node("td", { className: "score", textContent: deleted ? "masked" : rounded(scores[j]) }));
    line.append(node("td", {}, deleted ? (scored ? "" : "masked") : weightBar(y[j])));
  });
  return line;
}

function weightBar(weight, text = formatWeight(weight, 4)) {
  const bar = node("span");
  bar.style.width = `${(100 * weight).toFixed(2)}%`;
  const number = node("span", { textContent: text, className: weight === 0 ? "none" : "" });
  return node("span", { className: "weight" }, number, node("span", { className: "length" }, bar));
}

// The tooltip follows the pointer and stays on the page.
function showTip(tip, event, content, name, row, column) {
  const { count, parts } = summary(content, row);
  const words = [node("bdi", { textContent: visible(content.target[row]) })];
  if (column !== null) {
    const own = isDeleted(content.scores[row][column])
      ? "masked"
      : formatWeight(content.weights.row(row)[column], 4);
    words.push(" → ", node("bdi", { textContent: visible(content.source[column]) }), ` ${own}`);
  }
  tip.replaceChildren(
    node("p", {}, ...words),
    node("p", { textContent: `${name}: ${count}` }),
    ...parts
      .slice(0, 3)
      .map(({ words: text, sum }) =>
        node("p", { className: "part" }, node("bdi", { textContent: text }), ` ${sum}`),
      ),
  );
  tip.hidden = false;
  const [x, y] = [event.clientX + 14, event.clientY + 16];
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : y}px`;
}
