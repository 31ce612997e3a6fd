// The mappings of one row of scores, in float64, with the library's results: they follow the sliders.
//
// Each is argmax <x, y> - gamma Omega(y) over the simplex, and depends only on x / gamma. Zero weights are
// exactly 0, fused weights are exactly equal. A null score is deleted: its weight is 0, and the positions on
// both sides become adjacent.
"use strict";

const MAPPINGS = {
  softmax: { map: (x) => softmax(x), parameters: ["gamma"] },
  sparsemax: { map: (x) => projectSimplex(x), parameters: ["gamma"] },
  fusedmax: { map: fusedmax, parameters: ["gamma", "lam"], strength: "lam" },
  oscarmax: { map: oscarmax, parameters: ["gamma", "lam"], strength: "lam", clusters: true },
  sqpnormmax: { map: sqpnormmax, parameters: ["gamma", "p"], strength: "p" },
  entmax: { map: entmax, parameters: ["gamma", "alpha"], strength: "alpha" },
};

// The weights of one row of scores under {mapping, gamma, lam, p, alpha}.
function mapRow(scores, setting) {
  const places = scores.flatMap((score, i) => (score === null ? [] : [i]));
  const y = new Array(scores.length).fill(0);
  if (places.length === 0) return y;
  const { map, strength } = MAPPINGS[setting.mapping];
  const x = places.map((i) => scores[i]);
  const top = maximum(x);
  // Differences are divided, so that those of scores far from 0 keep their digits. softmax subtracts quotients:
  // its ties in the last bit then agree with the library in more rows.
  const centred =
    setting.mapping !== "softmax"
      ? x.map((score) => (score - top) / setting.gamma)
      : x.map((score) => score / setting.gamma - top / setting.gamma);
  const kept = map(centred, setting[strength]);
  places.forEach((place, k) => (y[place] = kept[k]));
  return y;
}

// Not Math.max(...x): a long row would overflow the stack.
const maximum = (x) => x.reduce((a, b) => (a > b ? a : b));
const total = (x) => x.reduce((a, b) => a + b, 0);

// Shift the largest score to 0: the scores that matter then differ little from it, at any scale.

function softmax(x) {
  const exponentials = x.map(Math.exp);
  const sum = total(exponentials);
  return exponentials.map((e) => e / sum);
}

// Every subset gives a lower bound (sum - 1) / size of the threshold, and scores at or below a lower bound are
// outside the support: start from x > -1, drop the scores that the bound of the rest excludes, and stop when
// none is dropped.
function simplexThreshold(x) {
  let kept = x.filter((score) => score > -1);
  for (;;) {
    const tau = (total(kept) - 1) / kept.length;
    const fewer = kept.filter((score) => score > tau);
    if (fewer.length >= kept.length || fewer.length === 0) return tau;
    kept = fewer;
  }
}

function projectSimplex(x) {
  const tau = simplexThreshold(x);
  return x.map((score) => (score > tau ? score - tau : 0));
}

// Pooled scores carry the rounding errors of long sums; division by the total keeps equal weights equal.
function normalised(y) {
  const sum = total(y);
  return y.map((weight) => weight / sum);
}

// Pool neighbours, then project. A score at or below cut = tau - 4 lam (tau: sparsemax's threshold) is in no
// level set above the threshold; it only pulls its neighbours by the full lam. So the candidates, the scores
// above cut, are pooled separately between any two such scores.
function fusedmax(x, lam) {
  if (lam === 0) return projectSimplex(x);
  const cut = simplexThreshold(x) - 4 * lam;
  const y = new Array(x.length).fill(0);
  const places = [];
  const pooled = [];
  for (let begin = 0, end; begin < x.length; begin = end) {
    end = begin + 1;
    if (x[begin] <= cut) continue;
    while (end < x.length && x[end] > cut) ++end;
    const run = x.slice(begin, end);
    if (begin > 0) run[0] -= lam;
    if (end < x.length) run[run.length - 1] -= lam;
    proxTv(run, lam).forEach((z, k) => (pooled.push(z), places.push(begin + k)));
  }
  const top = maximum(pooled);
  projectSimplex(pooled.map((z) => z - top)).forEach((weight, k) => (y[places[k]] = weight));
  return normalised(y);
}

// argmin 1/2 |z - x|^2 + lam sum |z_{i+1} - z_i|. The value of a group is the mean of its scores, pulled by lam
// towards each adjacent group. It is computed once per group, so all its positions have the same number.
function proxTv(x, lam) {
  const rises = x.length * (maximum(x) - minimum(x)) <= lam ? x.map(() => 0) : groupSteps(x, lam);
  const z = [];
  for (let begin = 0, end; begin < x.length; begin = end) {
    end = begin + 1;
    while (end < x.length && rises[end] === 0) ++end;
    const pull = lam * ((end < x.length ? rises[end] : 0) - rises[begin]);
    const value = (total(x.slice(begin, end)) + pull) / (end - begin);
    while (z.length < end) z.push(value);
  }
  return z;
}

const minimum = (x) => x.reduce((a, b) => (a < b ? a : b));

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
  const rises = new Array(clips.length + 1).fill(0);
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
function oscarmax(x, lam) {
  if (lam === 0) return projectSimplex(x);
  const d = x.length;
  if (-minimum(x) <= (lam * d) / 2) return x.map(() => 1 / d);
  const order = x.map((_, i) => i).sort((i, j) => x[j] - x[i]);
  const best = bestPrefix(
    order.map((i) => x[i]),
    lam,
  );
  const middle = (best.length + 1) / 2;
  const z = poolDecreasing(order.slice(0, best.length).map((i, k) => x[i] + lam * (k + 1 - middle)));
  const tau = (best.sum - 1) / best.length;
  const y = new Array(d).fill(0);
  z.forEach((value, k) => (y[order[k]] = Math.max(value - tau, 0)));
  return normalised(y);
}

function bestPrefix(sorted, lam) {
  let best = { length: 0, sum: 0, tau: -Infinity };
  let sum = 0;
  sorted.forEach((score, k) => {
    sum += score;
    const tau = (sum - 1) / (k + 1) + (lam * (k + 2)) / 2;
    if (tau >= best.tau) best = { length: k + 1, sum, tau };
  });
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
  return pools.flatMap(({ sum, count }) => new Array(count).fill(sum / count));
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
  let sums = powerSums(x, 1, q);
  for (let round = 0; round < 200 && Math.abs(sums.logG) > 1e-16; ++round) {
    if (sums.logG > 0) high = u;
    else low = u;
    const newton = -sums.logG / sums.slope;
    const trusted = u + newton > low && u + newton < high && Math.abs(newton) < Math.abs(step) / 2;
    step = trusted ? newton : (low + high) / 2 - u;
    u += step;
    sums = powerSums(x, Math.exp(u), q);
    if (Math.abs(step) <= 1e-15) break;
  }
  return sums.powers.map((power) => power / sums.a);
}

function powerSums(x, largest, q) {
  let [a, b, c] = [0, 0, 0];
  const powers = x.map((score) => {
    const w = (score + largest) / largest;
    if (w <= 0) return 0;
    const power = Math.pow(w, q - 2);
    a += power * w;
    b += power * w * w;
    c += power;
    return power * w;
  });
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
  let m = 1;
  let sums = ratios(x, m, a);
  for (let round = 0; round < 100; ++round) {
    const step = (-Math.expm1(-Math.log(m) - a * Math.log(sums.s)) * sums.s) / sums.c;
    if (!(step > 1e-16)) break;
    m *= 1 - step;
    sums = ratios(x, m, a);
  }
  return sums.r.map((ratio) => ratio / sums.s);
}

function ratios(x, m, a) {
  let [s, c] = [0, 0];
  const r = x.map((score) => {
    const share = (-a * score) / m;
    if (!(share < 1)) return 0;
    const ratio = Math.exp(Math.log1p(-share) / a);
    s += ratio;
    c += ratio / (1 - share);
    return ratio;
  });
  return { r, s, c };
}
