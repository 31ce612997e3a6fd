// The mappings of one row of scores, in float64, with the library's results: they follow the sliders.
//
// Each is argmax <x, y> - gamma Omega(y) over the simplex, and depends only on x / gamma. Zero weights are
// exactly 0, fused weights are exactly equal. A score of -Infinity is deleted: its weight is 0, and the positions
// on both sides become adjacent.
"use strict";

const MAPPINGS = {
  softmax: { map: (x) => softmax(x), parameters: ["gamma"] },
  sparsemax: { map: (x) => projectSimplex(x), parameters: ["gamma"] },
  fusedmax: { map: fusedmax, parameters: ["gamma", "lam"], strength: "lam" },
  oscarmax: { map: oscarmax, parameters: ["gamma", "lam"], strength: "lam", clusters: true },
  sqpnormmax: { map: sqpnormmax, parameters: ["gamma", "p"], strength: "p" },
  entmax: { map: entmax, parameters: ["gamma", "alpha"], strength: "alpha" },
};

// The weights of one row of scores, any array of numbers, under {mapping, gamma, lam, p, alpha}. Loops instead of
// array methods: they are several times faster, and a slider maps hundreds of long rows at once.
function mapRow(scores, setting) {
  const { map, strength } = MAPPINGS[setting.mapping];
  const x = kept(scores);
  if (x.length === 0) return new Float64Array(scores.length);
  const top = maximum(x);
  // Differences are divided, so that those of scores far from 0 keep their digits. softmax subtracts quotients:
  // its ties in the last bit then agree with the library in more rows.
  const { gamma } = setting;
  const quotients = setting.mapping === "softmax";
  for (let i = 0; i < x.length; ++i) x[i] = quotients ? x[i] / gamma - top / gamma : (x[i] - top) / gamma;
  const y = map(x, setting[strength]);
  return x.length === scores.length ? y : expanded(y, scores);
}

const isDeleted = (score) => score === -Infinity;

// Memory for intermediate results, by name: an array per row and step would cost more than the arithmetic. What is
// returned here is overwritten by the next request of the same name.
const scratch = new Map();
function borrowed(name, length) {
  if (!(scratch.get(name)?.length >= length)) scratch.set(name, new Float64Array(2 * length));
  return scratch.get(name).subarray(0, length);
}

function kept(scores) {
  const x = borrowed("kept", scores.length);
  let length = 0;
  for (let i = 0; i < scores.length; ++i) if (!isDeleted(scores[i])) x[length++] = scores[i];
  return x.subarray(0, length);
}

function expanded(y, scores) {
  const whole = new Float64Array(scores.length);
  for (let i = 0, k = 0; i < scores.length; ++i) if (!isDeleted(scores[i])) whole[i] = y[k++];
  return whole;
}

function maximum(x) {
  let largest = x[0];
  for (let i = 1; i < x.length; ++i) if (x[i] > largest) largest = x[i];
  return largest;
}

// With the rounding errors of the additions added at the end (Neumaier): long rows lose no digits.
function total(x) {
  let [sum, lost] = [0, 0];
  for (let i = 0; i < x.length; ++i) {
    const next = sum + x[i];
    lost += Math.abs(sum) >= Math.abs(x[i]) ? sum - next + x[i] : x[i] - next + sum;
    sum = next;
  }
  return sum + lost;
}

// The numbers above a bound, in order. They may be filtered again, in place.
function above(x, bound) {
  const found = borrowed("above", x.length);
  let length = 0;
  for (let i = 0; i < x.length; ++i) if (x[i] > bound) found[length++] = x[i];
  return found.subarray(0, length);
}

// The mappings receive scores whose largest is 0: those that matter then differ little from it, at any scale.

function softmax(x) {
  const y = new Float64Array(x.length);
  for (let i = 0; i < x.length; ++i) y[i] = Math.exp(x[i]);
  return normalised(y);
}

// Every subset gives a lower bound (sum - 1) / size of the threshold, and scores at or below a lower bound are
// outside the support: start from x > -1, drop the scores that the bound of the rest excludes, and stop when
// none is dropped.
function simplexThreshold(x) {
  let rest = above(x, -1);
  for (;;) {
    const tau = (total(rest) - 1) / rest.length;
    const fewer = above(rest, tau);
    if (fewer.length >= rest.length || fewer.length === 0) return tau;
    rest = fewer;
  }
}

function projectSimplex(x) {
  const tau = simplexThreshold(x);
  const y = new Float64Array(x.length);
  for (let i = 0; i < x.length; ++i) if (x[i] > tau) y[i] = x[i] - tau;
  return y;
}

// Pooled scores carry the rounding errors of long sums; division by the total keeps equal weights equal.
function normalised(y) {
  const sum = total(y);
  for (let i = 0; i < y.length; ++i) y[i] /= sum;
  return y;
}

// Pool neighbours, then project. A score at or below cut = tau - 4 lam (tau: sparsemax's threshold) is in no
// level set above the threshold; it only pulls its neighbours by the full lam. So the candidates, the scores
// above cut, are pooled separately between any two such scores.
function fusedmax(x, lam) {
  if (lam === 0) return projectSimplex(x);
  const cut = simplexThreshold(x) - 4 * lam;
  const y = new Float64Array(x.length);
  const places = borrowed("places", x.length);
  const pooled = borrowed("pooled", x.length);
  let count = 0;
  for (let begin = 0, end; begin < x.length; begin = end) {
    end = begin + 1;
    if (x[begin] <= cut) continue;
    while (end < x.length && x[end] > cut) ++end;
    const run = x.slice(begin, end);
    if (begin > 0) run[0] -= lam;
    if (end < x.length) run[run.length - 1] -= lam;
    const z = run.length === 1 ? run : proxTv(run, lam, x.subarray(begin, end));
    for (let k = 0; k < z.length; ++k, ++count) (pooled[count] = z[k]), (places[count] = begin + k);
  }
  const z = pooled.subarray(0, count);
  const top = maximum(z);
  for (let k = 0; k < count; ++k) z[k] -= top;
  const tau = simplexThreshold(z);
  for (let k = 0; k < count; ++k) z[k] = Math.max(z[k] - tau, 0);
  normalised(z);
  for (let k = 0; k < count; ++k) y[places[k]] = z[k];
  return y;
}

// argmin 1/2 |z - x|^2 + lam sum |z_{i+1} - z_i|. The value of a group is the mean of its scores, pulled by lam
// towards each adjacent group. It is computed once per group, so all its positions have the same number. Equal
// neighbours among the given scores, before lam was subtracted at the ends, stay equal whatever rounding says.
function proxTv(x, lam, given) {
  const rises = x.length * (maximum(x) - minimum(x)) <= lam ? new Int8Array(x.length) : groupSteps(x, lam);
  const z = [];
  for (let begin = 0, end; begin < x.length; begin = end) {
    end = begin + 1;
    while (end < x.length && (rises[end] === 0 || given[end] === given[end - 1])) ++end;
    const pull = lam * ((end < x.length ? rises[end] : 0) - rises[begin]);
    const value = (total(x.subarray(begin, end)) + pull) / (end - begin);
    while (z.length < end) z.push(value);
  }
  return z;
}

function minimum(x) {
  let least = x[0];
  for (let i = 1; i < x.length; ++i) if (x[i] < least) least = x[i];
  return least;
}

// For every position the sign of the step from the previous one: 0 inside a group. Johnson's dynamic programme
// (2013): f_i(t), the least cost of the first positions with z_i = t, has the increasing, piecewise linear
// derivative f_i' = clip(f_{i-1}', -lam, lam) + t - x_i, kept as its knots, each with the change of slope and
// intercept there. f_{i-1}' is clipped below lower and above upper, hence z_{i-1} = clip(z_i, lower, upper)
// on the way back.
function groupSteps(x, lam) {
  const clips = [];
  const knots = new Array(2 * x.length);
  let [head, tail] = [x.length, x.length];
  let left = { slope: 1, intercept: -x[0] };
  let right = { ...left };
  const fromLeft = (level) => {
    while (head < tail && left.slope * knots[head].t + left.intercept <= level) add(left, knots[head++], 1);
    return (level - left.intercept) / left.slope;
  };
  const fromRight = (level) => {
    while (head < tail && right.slope * knots[tail - 1].t + right.intercept >= level)
      add(right, knots[--tail], -1);
    return (level - right.intercept) / right.slope;
  };
  for (let i = 1; i < x.length; ++i) {
    const lower = fromLeft(-lam);
    const upper = Math.max(lower, fromRight(lam));
    knots[--head] = { t: lower, slope: left.slope, intercept: left.intercept + lam };
    knots[tail++] = { t: upper, slope: -right.slope, intercept: lam - right.intercept };
    clips.push([lower, upper]);
    left = { slope: 1, intercept: -lam - x[i] };
    right = { slope: 1, intercept: lam - x[i] };
  }
  return stepsBack(fromLeft(0), clips);
}

function add(line, knot, sign) {
  line.slope += sign * knot.slope;
  line.intercept += sign * knot.intercept;
}

function stepsBack(last, clips) {
  const rises = new Int8Array(clips.length + 1);
  let z = last;
  for (let i = clips.length; i > 0; --i) {
    const [lower, upper] = clips[i - 1];
    rises[i] = (z > upper) - (z < lower);
    z = Math.min(Math.max(z, lower), upper);
  }
  return rises;
}

// With x sorted in decreasing order the OSCAR penalty is lam sum_k (d - k) y_(k): add lam k instead of
// subtracting lam (d - k), which is a shift, and pool adjacent violators. The threshold is the largest
// (x_(1) + ... + x_(m) - 1) / m + lam (m + 1) / 2, and only the m scores that attain it need pooling. If no two
// scores differ by more than lam d / 2, the weights are uniform.
//
// tau_m >= tau_(m-1) and tau_m >= tau_1 = lam - 1 give x_(m) >= lam - 1 - lam m: with any upper bound of m, lower
// scores are outside. Equal scores are in one pool, so a weight is found by its score.
function oscarmax(x, lam) {
  if (lam === 0) return projectSimplex(x);
  const d = x.length;
  if (-minimum(x) <= (lam * d) / 2) return new Float64Array(d).fill(1 / d);
  const sorted = candidates(x, lam).sort().reverse();
  const best = bestPrefix(sorted, lam);
  const middle = (best.length + 1) / 2;
  const z = poolDecreasing(sorted.subarray(0, best.length).map((score, k) => score + lam * (k + 1 - middle)));
  const tau = (best.sum - 1) / best.length;
  return normalised(x.map((score) => weightOf(score, sorted, z, best.length, tau)));
}

function candidates(x, lam) {
  let found = above(x, -Infinity);
  for (;;) {
    const fewer = above(found, (lam - 1 - lam * found.length) * (1 + 1e-12));
    if (fewer.length === found.length) return found;
    found = fewer;
  }
}

// The weight of a score, by bisection in the sorted scores.
function weightOf(score, sorted, z, length, tau) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > score) low = middle + 1;
    else high = middle;
  }
  return low < length ? Math.max(z[low] - tau, 0) : 0;
}

function bestPrefix(sorted, lam) {
  let best = { length: 0, sum: 0, tau: -Infinity };
  let sum = 0;
  for (let k = 0; k < sorted.length; ++k) {
    sum += sorted[k];
    const tau = (sum - 1) / (k + 1) + (lam * (k + 2)) / 2;
    if (tau >= best.tau) best = { length: k + 1, sum, tau };
  }
  return best;
}

// The nearest decreasing sequence. Equal neighbours are pooled too, so that equal values are exactly equal.
function poolDecreasing(x) {
  const pools = [];
  for (const score of x) {
    let pool = { sum: score, count: 1 };
    while (pools.length > 0 && pools.at(-1).sum / pools.at(-1).count <= pool.sum / pool.count) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count };
    }
    pools.push(pool);
  }
  const z = new Float64Array(x.length);
  let end = 0;
  for (const { sum, count } of pools) z.fill(sum / count, end, (end += count));
  return z;
}

// y = |z|_q^(2-q) z^(q-1), z = (x - tau)_+, q = p / (p - 1). With Z = -tau, w = z / Z, A = sum w^(q-1), B =
// sum w^q and C = sum w^(q-2): the sum of y is g(Z) = Z A B^((2-q)/q), and d log g / d log Z = (q-1) C / A +
// (2-q) A / B >= 1. Newton in log Z finds g = 1; the root is in [d^(-2/q), 1]. Bisection replaces a step that
// leaves the bracket or is more than half the previous one.
function sqpnormmax(x, p) {
  if (p === 2) return projectSimplex(x);
  const q = p / (p - 1);
  let [low, high] = [(-2 / q) * Math.log(x.length) - 1e-12, 0];
  let [u, step] = [0, Infinity];
  const near = above(x, -1); // Z <= 1: lower scores are outside
  let sums = powerSums(near, 1, q);
  for (let round = 0; round < 200 && Math.abs(sums.logG) > 1e-16; ++round) {
    if (sums.logG > 0) high = u;
    else low = u;
    const newton = -sums.logG / sums.slope;
    const trusted = u + newton > low && u + newton < high && Math.abs(newton) < Math.abs(step) / 2;
    step = trusted ? newton : (low + high) / 2 - u;
    u += step;
    sums = powerSums(near, Math.exp(u), q);
    if (Math.abs(step) <= 1e-15) break;
  }
  return inPlace(x, -1, sums.powers, sums.a);
}

// The powers of the scores above a bound, divided by their sum, in their places; all others are 0.
function inPlace(x, bound, powers, sum) {
  const y = new Float64Array(x.length);
  for (let i = 0, k = 0; i < x.length; ++i) if (x[i] > bound) y[i] = powers[k++] / sum;
  return y;
}

// Powers by way of log1p, which keeps the digits of small differences that a power with a large exponent needs.
function powerSums(x, largest, q) {
  let [b, c] = [0, 0];
  const powers = borrowed("powers", x.length).fill(0);
  for (let i = 0; i < x.length; ++i) {
    const w = (x[i] + largest) / largest;
    if (w <= 0) continue;
    powers[i] = Math.exp((q - 1) * Math.log1p(x[i] / largest));
    b += powers[i] * w;
    c += powers[i] / w;
  }
  const a = total(powers);
  const logG = Math.log(largest * a) + ((2 - q) / q) * Math.log(b);
  return { logG, slope: ((q - 1) * c) / a + ((2 - q) * a) / b, a, powers };
}

// y = (a x - tau)_+^(1/a), a = alpha - 1. With m = -tau and r = (1 + a x / m)_+^(1/a), y = r / S for S = sum r,
// and m is the root of F(m) = m S^a, which is convex and at least 1 at m = 1: Newton's steps
// m (1 - (1 - 1/F) S / C), C = sum r^(1-a), decrease to it.
function entmax(x, alpha) {
  if (alpha === 1) return softmax(x);
  if (alpha === 2) return projectSimplex(x);
  const a = alpha - 1;
  const near = above(x, -1 / a); // m <= 1: lower scores are outside
  let m = 1;
  let sums = ratios(near, m, a);
  for (let round = 0; round < 100; ++round) {
    const step = (-Math.expm1(-Math.log(m) - a * Math.log(sums.s)) * sums.s) / sums.c;
    if (!(step > 1e-16)) break;
    m *= 1 - step;
    sums = ratios(near, m, a);
  }
  return inPlace(x, -1 / a, sums.r, sums.s);
}

function ratios(x, m, a) {
  let c = 0;
  const r = borrowed("powers", x.length).fill(0);
  for (let i = 0; i < x.length; ++i) {
    const share = (-a * x[i]) / m;
    if (!(share < 1)) continue;
    r[i] = Math.exp(Math.log1p(-share) / a);
    c += r[i] / (1 - share);
  }
  return { r, s: total(r), c };
}
