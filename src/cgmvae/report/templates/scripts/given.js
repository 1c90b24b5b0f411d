// If some labels are known: the others at a row where every label has its mean probability.
//
// The mathematics is that of methods/conditioning.py, for one row. What each label would observe of its
// latent variable, present or absent, is in the page.

const N_MOVED = 12;

// The normal distribution function (Abramowitz and Stegun 26.2.17, to 1e-7).
function normalCdf(x) {
  const t = 1 / (1 + 0.2316419 * Math.abs(x));
  const series = [1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.31938153].reduce((sum, b) => (sum + b) * t, 0);
  const tail = Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI) * series;
  return x < 0 ? tail : 1 - tail;
}

// The inverse of a small positive definite matrix, by elimination.
function inverse(matrix) {
  const rows = matrix.map((row, i) => [...row, ...row.map((_, j) => Number(i === j))]);
  for (let i = 0; i < matrix.length; i++) {
    const pivot = rows[i][i];
    rows[i] = rows[i].map((value) => value / pivot);
    for (let k = 0; k < matrix.length; k++) {
      const factor = rows[k][i];
      if (k !== i) rows[k] = rows[k].map((value, j) => value - factor * rows[i][j]);
    }
  }
  return rows.map((row) => row.slice(matrix.length));
}

// The probability of every label, given a map from labels to whether they are present.
function probabilitiesGiven(known) {
  const nFactors = arrays.loadings.length / nLabels;
  const loading = (label) => arrays.loadings.subarray(label * nFactors, (label + 1) * nFactors);
  const onlyPresent = ![...known.values()].includes(false);
  const information = Array.from({ length: nFactors }, (_, i) => Array.from({ length: nFactors }, (_, j) => Number(i === j)));
  const seen = new Float64Array(nFactors);
  for (const [label, isPresent] of known) {
    const b = loading(label), own = isPresent ? 0 : 2;
    const strength = Math.exp(record.strengths[isPresent ? (onlyPresent ? 2 : 0) : 1]);
    const explained = b.reduce((sum, value) => sum + value * value, 0);
    const precision = strength / (1 - explained + arrays.observed[(own + 1) * nLabels + label]);
    for (let i = 0; i < nFactors; i++) {
      seen[i] += precision * arrays.observed[own * nLabels + label] * b[i];
      for (let j = 0; j < nFactors; j++) information[i][j] += precision * b[i] * b[j];
    }
  }
  const covariance = inverse(information);
  const mean = covariance.map((row) => row.reduce((sum, value, j) => sum + value * seen[j], 0));
  const named = Math.min(known.size / Math.max(record.expected, 1), 0.9);
  const shift = known.size && onlyPresent ? record.strengths[3] * Math.log1p(-named) : 0;
  return names.map((_, label) => {
    if (known.has(label)) return Number(known.get(label));
    const b = loading(label);
    let center = arrays.typical[label], variance = 1;
    for (let i = 0; i < nFactors; i++) {
      center += mean[i] * b[i];
      for (let j = 0; j < nFactors; j++) variance += b[i] * b[j] * (covariance[i][j] - Number(i === j));
    }
    return normalCdf((center + shift) / Math.sqrt(variance));
  });
}

function startGiven() {
  if (!("loadings" in arrays)) return;
  const known = new Map(), alone = probabilitiesGiven(new Map());

  function show() {
    byId("given-known").replaceChildren(...[...known].map(([label, isPresent]) => {
      const chip = make("button", { type: "button" }, `${names[label]}: ${isPresent ? "present" : "absent"} ×`);
      chip.addEventListener("click", () => { known.delete(label); show(); });
      return chip;
    }));
    const now = probabilitiesGiven(known);
    const moved = [...names.keys()].filter((label) => !known.has(label));
    moved.sort((a, b) => Math.abs(now[b] - alone[b]) - Math.abs(now[a] - alone[a]));
    const rows = known.size ? moved.slice(0, N_MOVED).map((label) => {
      const link = make("button", { type: "button", className: "link" }, names[label]);
      link.addEventListener("click", () => choose(label));
      const change = now[label] - alone[label];
      const cells = [decimals(alone[label], 2), decimals(now[label], 2), `${change > 0 ? "+" : ""}${decimals(change, 2)}`];
      const row = make("tr", {}, make("td", {}, link), ...cells.map((text) => make("td", {}, text)));
      row.dataset.label = label;
      row.dataset.probability = now[label];
      return row;
    }) : [make("tr", {}, make("td", { colSpan: 4, className: "none" }, "No label is known."))];
    byId("given-rows").replaceChildren(...rows);
  }

  const take = (isPresent) => { known.set(chosen, isPresent); show(); };
  byId("given-present").addEventListener("click", () => take(true));
  byId("given-absent").addEventListener("click", () => take(false));
  watch("label", () => { byId("given-label").textContent = names[chosen]; });
  take(true);
}
