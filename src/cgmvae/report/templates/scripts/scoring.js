// The five metrics on the rows of the page under any thresholds, as cgmvae.evaluation computes them:
// a score that equals its threshold is positive, unknown cells are ignored, and a row without true
// and predicted labels has an example-F1 of 1, unless none of its labels is known. Macro-F1 is over the
// labels that occur.

const rule = {
  thresholds: new Uint16Array(nLabels),
  byHand: new Set(), // labels whose threshold the reader set
  shared: record.rule.threshold, // value of the slider for all labels
  isOwn: true, // no threshold was changed
};

const counts = {
  labelTrue: new Uint32Array(nLabels), labelPredicted: new Uint32Array(nLabels), labelBoth: new Uint32Array(nLabels),
  rowKnown: new Uint32Array(nRows), rowTrue: new Uint32Array(nRows), rowPredicted: new Uint32Array(nRows), rowBoth: new Uint32Array(nRows),
};

for (let row = 0, cell = 0; row < nRows; row++) {
  for (let label = 0; label < nLabels; label++, cell++) {
    counts.labelTrue[label] += truth[cell];
    counts.rowTrue[row] += truth[cell];
    counts.rowKnown[row] += arrays.scores[cell] !== UNKNOWN;
  }
}

// A top-k rule has no thresholds; it is kept until a threshold is changed.
function isPredicted(cell, label) {
  const score = arrays.scores[cell];
  if (score === UNKNOWN) return 0;
  if (own && rule.isOwn) return own[cell];
  return score >= rule.thresholds[label] ? 1 : 0;
}

function countAll() {
  const { labelPredicted, labelBoth, rowPredicted, rowBoth } = counts;
  const { scores } = arrays, { thresholds } = rule, useOwn = own !== null && rule.isOwn;
  labelPredicted.fill(0);
  labelBoth.fill(0);
  for (let row = 0, cell = 0; row < nRows; row++) {
    let predicted = 0, both = 0;
    for (let label = 0; label < nLabels; label++, cell++) {
      const score = scores[cell];
      if (score === UNKNOWN || (useOwn ? own[cell] === 0 : score < thresholds[label])) continue;
      predicted++;
      both += truth[cell];
      labelPredicted[label]++;
      labelBoth[label] += truth[cell];
    }
    rowPredicted[row] = predicted;
    rowBoth[row] = both;
  }
}

// The threshold of a label changes only the cells of that label.
function countLabel(label, threshold) {
  const { scores } = arrays, { rowPredicted, rowBoth, labelPredicted, labelBoth } = counts;
  const before = rule.thresholds[label];
  for (let row = 0, cell = label; row < nRows; row++, cell += nLabels) {
    const score = scores[cell];
    if (score === UNKNOWN) continue;
    const change = (score >= threshold) - (score >= before);
    if (change === 0) continue;
    rowPredicted[row] += change;
    labelPredicted[label] += change;
    rowBoth[row] += change * truth[cell];
    labelBoth[label] += change * truth[cell];
  }
  rule.thresholds[label] = threshold;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function metrics() {
  const { labelTrue, labelPredicted, labelBoth, rowKnown, rowTrue, rowPredicted, rowBoth } = counts;
  let example = 0, scored = 0, macro = 0, occurring = 0;
  for (let row = 0; row < nRows; row++) {
    const size = rowTrue[row] + rowPredicted[row];
    if (rowKnown[row] === 0) continue;
    example += size === 0 ? 1 : 2 * rowBoth[row] / size;
    scored++;
  }
  for (let label = 0; label < nLabels; label++) {
    macro += 2 * labelBoth[label] / Math.max(labelTrue[label] + labelPredicted[label], 1);
    occurring += labelTrue[label] > 0;
  }
  const size = sum(labelTrue) + sum(labelPredicted), both = sum(labelBoth);
  return {
    example_f1: example / Math.max(scored, 1),
    micro_f1: 2 * both / Math.max(size, 1),
    macro_f1: macro / Math.max(occurring, 1),
    hamming_accuracy: record.n_known ? (record.n_known - size + 2 * both) / record.n_known : 0,
    precision_at_1: record.precision_at_1 ?? NaN,
  };
}

function restoreOwnRule() {
  if (arrays.thresholds) rule.thresholds.set(arrays.thresholds);
  else rule.thresholds.fill(record.rule.threshold);
  rule.byHand.clear();
  rule.shared = record.rule.threshold;
  rule.isOwn = true;
  countAll();
}

function setAll(threshold) {
  rule.isOwn = false;
  rule.shared = threshold;
  for (let label = 0; label < nLabels; label++) if (!rule.byHand.has(label)) rule.thresholds[label] = threshold;
  countAll();
  tell("rule");
}

function setLabel(label, threshold) {
  if (own && rule.isOwn) setAll(rule.shared);
  rule.isOwn = false;
  rule.byHand.add(label);
  countLabel(label, threshold);
  tell("rule");
}

function releaseLabel(label) {
  rule.byHand.delete(label);
  countLabel(label, rule.shared);
  tell("rule");
}

restoreOwnRule();
const ownMetrics = metrics();
