// The details of one target word: its support, its segments or clusters, and every weight.

// "3 of 14 words have weight, in 2 segments", and the words of each.
function summary(content, row) {
  const [y, scores] = [content.weights[row], content.scores[row]];
  const found = groups(y, scores, content.clustered);
  const kept = scores.filter((score) => score !== null).length;
  const kind = content.clustered ? "cluster" : "segment";
  const parts = found.map(({ weight, places }) => ({
    words: phrase(content, places),
    sum: places.length > 1 ? `${places.length} × ${formatWeight(weight)}` : formatWeight(weight),
  }));
  const count = `${supportSize(y)} of ${kept} words, ${found.length} ${kind}${found.length === 1 ? "" : "s"}`;
  return { count, parts, entropy: `entropy ${entropy(y).toFixed(2)}` };
}

// The words of a group: adjacent words are separated by a space, subwords of one word by nothing, and
// non-adjacent words by a gap.
function phrase(content, places) {
  const words = places.map(
    (place, k) => (k > 0 && place !== places[k - 1] + 1 ? "… " : "") + content.source[place],
  );
  return words.join(" ").replaceAll(" \u203f", "");
}

function summaryNode(name, content, row) {
  const { count, parts, entropy } = summary(content, row);
  const shown = parts
    .slice(0, 6)
    .map(({ words, sum }) =>
      node("li", {}, node("bdi", { className: "words", textContent: words }), ` ${sum}`),
    );
  if (parts.length > 6) shown.push(node("li", { textContent: `and ${parts.length - 6} more` }));
  return node(
    "div",
    { className: "summary" },
    node("p", {}, node("strong", { textContent: name }), ` ${count}, ${entropy}`),
    node("ul", {}, ...shown),
  );
}

// The scores, only once if both panels map the same ones, and one column of weights per panel.
function numbersTable(panels, row, column) {
  const shared = panels.every(({ content }) => content.scores === panels[0].content.scores);
  const scored = (k) => k === 0 || !shared;
  const heads = panels.flatMap(({ name }, k) => (scored(k) ? ["score", name] : [name]));
  const head = node(
    "tr",
    {},
    ...["source", ...heads].map((text) => node("th", { textContent: text, scope: "col" })),
  );
  const lines = panels[0].content.source.map((token, j) => {
    const line = node("tr", { className: j === column ? "marked" : "" });
    line.append(node("th", { scope: "row" }, node("bdi", { textContent: token })));
    panels.forEach(({ content }, k) => {
      const clamped = Math.min(row, content.target.length - 1);
      const [score, weight] = [content.scores[clamped][j], content.weights[clamped][j]];
      if (scored(k))
        line.append(
          node("td", { className: "score", textContent: score === null ? "masked" : score.toFixed(2) }),
        );
      line.append(node("td", {}, score === null ? "" : weightBar(weight)));
    });
    return line;
  });
  return [node("thead", {}, head), node("tbody", {}, ...lines)];
}

function weightBar(weight) {
  const bar = node("span");
  bar.style.width = `${(100 * weight).toFixed(2)}%`;
  const number = node("span", {
    textContent: formatWeight(weight, 4),
    className: weight === 0 ? "none" : "",
  });
  return node("span", { className: "weight" }, number, node("span", { className: "length" }, bar));
}

// The tooltip follows the pointer and stays on the page.
function showTip(tip, event, content, name, row, column) {
  const weight = content.weights[row][column];
  const { count, parts } = summary(content, row);
  const own = content.scores[row][column] === null ? "masked" : formatWeight(weight, 4);
  tip.replaceChildren(
    node(
      "p",
      {},
      node("bdi", { textContent: content.target[row] }),
      " ← ",
      node("bdi", { textContent: content.source[column] }),
      ` ${own}`,
    ),
    node("p", { textContent: `${name}: ${count}` }),
    ...parts
      .slice(0, 3)
      .map(({ words, sum }) =>
        node("p", { className: "part" }, node("bdi", { textContent: words }), ` ${sum}`),
      ),
  );
  tip.hidden = false;
  const [x, y] = [event.clientX + 14, event.clientY + 16];
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : y}px`;
}
