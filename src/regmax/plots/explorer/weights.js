// The weights of a view under a setting. A row is mapped when it is first needed: of a long text only the visible
// rows are, and a slider answers at once.

// Weights that a model computed have no strengths. The page knows them as the weights of a mapping of the view's scores.
const RECORDED = "recorded";
MAPPINGS[RECORDED] = { parameters: [] };
function settingOf(view, setting) {
  return setting.mapping === RECORDED ? parseSetting(view.recorded ?? view.mapping ?? "", "softmax") : setting;
}

class Weights {
  constructor(scores, setting) {
    this.scores = scores;
    this.setting = { ...setting };
    this.clustered = MAPPINGS[setting.mapping].clusters === true;
    this.known = new Array(scores.length);
    this.largest = 0; // of the rows so far
    this.sums = { rows: 0, support: 0, kept: 0, zeros: 0, parts: 0 };
  }

  row(i) {
    this.known[i] ??= this.mapped(i);
    return this.known[i];
  }

  mapped(i) {
    const y = mapRow(this.scores[i], this.setting);
    this.largest = Math.max(this.largest, maximum(y));
    return y;
  }

  // Add a row to the averages, and forget it unless it was needed.
  measure(i) {
    const y = this.known[i] ?? this.mapped(i);
    const { support, kept, parts } = rowCounts(y, this.scores[i], this.clustered);
    const { sums } = this;
    sums.rows += support > 0;
    sums.support += support;
    sums.kept += kept;
    sums.parts += parts;
    return y;
  }

  // Averages over the rows: words with weight, words, words per segment or cluster, and the share of zeros.
  averages() {
    const { rows, support, kept, parts } = this.sums;
    return {
      support: support / (rows || 1),
      words: kept / (rows || 1),
      length: parts === 0 ? 0 : support / parts,
      zeros: kept === 0 ? 0 : 1 - support / kept,
    };
  }
}

function rowCounts(y, scores, clustered) {
  let [support, kept, parts] = [0, 0, 0];
  const values = clustered ? new Set() : null;
  let before = 0; // the weight of the previous kept position
  for (let j = 0; j < y.length; ++j) {
    if (isDeleted(scores[j])) continue;
    ++kept;
    if (y[j] > 0) {
      ++support;
      if (clustered) values.add(y[j]);
      else parts += y[j] !== before;
    }
    before = y[j];
  }
  return { support, kept, parts: clustered ? values.size : parts };
}

// The weights of the last settings of a view: both panels may show it.
function weightsOf(view, setting) {
  const key = formatSetting({ ...setting, view: 0, also: [] });
  view.mapped ??= new Map();
  if (!view.mapped.has(key)) {
    if (view.mapped.size > 1) view.mapped.delete(view.mapped.keys().next().value);
    view.mapped.set(key, new Weights(scoresOf(view), settingOf(view, setting)));
  }
  return view.mapped.get(key);
}
