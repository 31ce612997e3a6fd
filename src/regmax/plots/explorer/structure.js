// The structure of a row of weights: its support, segments of adjacent equal weights, clusters of equal weights;
// and words as text.

// The maximal ranges [start, stop) of adjacent exactly equal weights, zeros included. Deleted positions (scores of
// -Infinity) form separate ranges: they have no weight, which differs from weight zero.
function runs(y, scores) {
  const pieces = [];
  for (let start = 0, stop; start < y.length; start = stop) {
    const deleted = isDeleted(scores[start]);
    stop = start + 1;
    while (stop < y.length && y[stop] === y[start] && isDeleted(scores[stop]) === deleted) ++stop;
    pieces.push({ start, stop, weight: y[start], deleted });
  }
  return pieces;
}

// For every position the number of its cluster, 0, 1, ... from the largest weight; null if no other position
// has exactly its weight, or if the weight is zero.
function clusters(y) {
  const count = new Map();
  for (const weight of y) count.set(weight, (count.get(weight) ?? 0) + 1);
  const shared = [...count.keys()]
    .filter((weight) => weight > 0 && count.get(weight) > 1)
    .sort((a, b) => b - a);
  const numbers = new Map(shared.map((weight, number) => [weight, number]));
  return Array.from(y, (weight) => numbers.get(weight) ?? null);
}

// The groups of positions that share a nonzero weight: clusters if the mapping makes them, segments otherwise;
// largest sum first.
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
  let size = 0;
  for (const weight of y) size += weight > 0;
  return size;
}

function entropy(y) {
  let sum = 0;
  for (const weight of y) if (weight > 0) sum -= weight * Math.log(weight);
  return sum;
}

// A weight as text: exact zeros are shown as such, and no other weight rounds to zero.
function formatWeight(weight, digits = 3) {
  if (weight === 0) return "0";
  return weight < 0.5 * 10 ** -digits ? weight.toExponential(0) : weight.toFixed(digits);
}

// Right-to-left scripts such as Hebrew and Arabic, recognised by the first letter that has a direction.
function isRightToLeft(tokens) {
  for (const token of tokens) {
    const letter = token.match(/\p{L}/u);
    if (letter) return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(letter[0]);
  }
  return false;
}

// Marks that keep a right-to-left word from reordering its surroundings.
function isolated(token) {
  return isRightToLeft([token]) ? `\u2068${token}\u2069` : token;
}

// Blanks and line breaks as signs, and control characters by their numbers if a token has nothing else.
const BLANKS = { " ": "␣", "\u00a0": "␣", "\t": "⇥", "\n": "↵", "\r": "↵" };
const codePoint = (letter) => `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
function visible(token) {
  if (token === "") return "∅";
  if (/^[\s\p{Cc}\p{Cf}]+$/u.test(token))
    return [...token].map((letter) => BLANKS[letter] ?? (/\s/.test(letter) ? "␣" : codePoint(letter))).join("");
  const outside = token.replace(/^\s+|\s+$|[\t\n\r]/g, (blanks) =>
    [...blanks].map((b) => BLANKS[b] ?? "␣").join(""),
  );
  return outside;
}

function shortened(token, length = 22) {
  const letters = [...visible(token)];
  return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : letters.join("");
}
