// What there is to see in a row of weights: its support, runs of equal neighbours, clusters of equal weights.

// The maximal pieces [start, stop) of neighbours with exactly the same weight. Deleted positions (null
// scores) are pieces of their own kind: they have no weight, not weight zero.
function runs(y, scores) {
  const pieces = [];
  for (let start = 0, stop; start < y.length; start = stop) {
    const deleted = scores[start] === null;
    stop = start + 1;
    while (stop < y.length && y[stop] === y[start] && (scores[stop] === null) === deleted) ++stop;
    pieces.push({ start, stop, weight: y[start], deleted });
  }
  return pieces;
}

// For every position the number of its cluster, 0, 1, ... from the largest weight; null where no other
// position has exactly its weight, or where that is zero.
function clusters(y) {
  const count = new Map();
  for (const weight of y) count.set(weight, (count.get(weight) ?? 0) + 1);
  const shared = [...count.keys()]
    .filter((weight) => weight > 0 && count.get(weight) > 1)
    .sort((a, b) => b - a);
  return y.map((weight) => (shared.includes(weight) ? shared.indexOf(weight) : null));
}

// Groups of positions that share a nonzero weight: runs, or clusters where the mapping makes those; largest
// sum first.
function groups(y, scores, clustered) {
  const places = new Map();
  runs(y, scores).forEach(({ start, stop, weight }) => {
    if (weight === 0) return;
    const key = clustered ? weight : start;
    const group = places.get(key) ?? { weight, places: [] };
    for (let i = start; i < stop; ++i) group.places.push(i);
    places.set(key, group);
  });
  return [...places.values()].sort((a, b) => b.weight * b.places.length - a.weight * a.places.length);
}

function supportSize(y) {
  return y.filter((weight) => weight > 0).length;
}

function entropy(y) {
  return -total(y.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0)));
}

// A weight for reading: zero is exact and says so, and nothing else rounds to it.
function formatWeight(weight, digits = 3) {
  if (weight === 0) return "0";
  return weight < 0.5 * 10 ** -digits ? weight.toExponential(0) : weight.toFixed(digits);
}

// Hebrew, Arabic and their kin, by the first letter that has a direction.
function isRightToLeft(tokens) {
  const letters = tokens.join(" ").match(/\p{L}/gu) ?? [];
  return letters.length > 0 && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(letters[0]);
}

// Marks that keep a right-to-left word from reordering what stands beside it.
function isolated(token) {
  return isRightToLeft([token]) ? `\u2068${token}\u2069` : token;
}

function shortened(token, length = 22) {
  const letters = [...token];
  return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : token;
}
