// The data of the page as typed arrays, and the shared state: the chosen label and its listeners.

const record = JSON.parse(document.getElementById("explorer-data").textContent);

const KINDS = {
  uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, float32: Float32Array,
};

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const unpack = ({ type, data }) => new KINDS[type](bytesOf(data).buffer);

const arrays = Object.fromEntries(Object.entries(record.arrays).map(([name, packed]) => [name, unpack(packed)]));
const { names } = record;
const nLabels = names.length, nRows = arrays.numbers.length;
const STEPS = 10000, UNKNOWN = 65535, NOT_MEASURED = -32768;

function bits(packed, length) {
  const flags = new Uint8Array(length);
  for (let i = 0; i < length; i++) flags[i] = (packed[i >> 3] >> (i & 7)) & 1;
  return flags;
}

const truth = bits(arrays.truth, nRows * nLabels);
const own = arrays.own ? bits(arrays.own, nRows * nLabels) : null;

// Pairs i < j are stored in the order (0,1), (0,2), … (1,2), …
function placeOf(i, j) {
  const a = Math.min(i, j), b = Math.max(i, j);
  return a * (2 * nLabels - a - 1) / 2 + b - a - 1;
}
function pair(values, steps, i, j) {
  if (i === j) return NaN;
  const value = values[placeOf(i, j)];
  return value === NOT_MEASURED ? NaN : value / steps;
}
const similarity = (i, j) => pair(arrays.similarity, 10000, i, j);
const correlation = (i, j) => pair(arrays.correlation, 10000, i, j);
const knowsResidual = "residual" in arrays;
const residual = (i, j) => pair(arrays.residual, 10000, i, j);
const isCertain = (i, j) => (arrays.certain[placeOf(i, j) >> 3] >> (placeOf(i, j) & 7)) & 1;
const together = (i, j) => pair(arrays.together, 1, i, j);
const lift = (i, j) => {
  if (together(i, j) === 0) return arrays.frequency[i] && arrays.frequency[j] ? 0 : NaN;
  return 2 ** pair(arrays.log_lift, 1000, i, j);
};

// Whether a similarity is large depends on the other pairs: the mean of two labels may well be 0.4.
const sortedPairs = arrays.similarity.filter((value) => value !== NOT_MEASURED).sort();
const quantile = (share) => sortedPairs.length ? sortedPairs[Math.floor(share * (sortedPairs.length - 1))] / 10000 : NaN;
const medianSimilarity = quantile(0.5), alikeFrom = Math.max(quantile(0.75), record.floor);
const isAlike = (i, j) => similarity(i, j) > alikeFrom;

// The share of pairs with a smaller similarity.
function shareBelow(value) {
  let low = 0, high = sortedPairs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sortedPairs[middle] / 10000 < value) low = middle + 1; else high = middle;
  }
  return low / sortedPairs.length;
}

const relativeTo = (i, j) => `similarity ${decimals(similarity(i, j), 2)} (above ${decimals(100 * shareBelow(similarity(i, j)), 0)}% of all pairs)`;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const byName = Uint16Array.from(names.keys()).sort((a, b) => collator.compare(names[a], names[b]));
const byFrequency = Uint16Array.from(names.keys()).sort((a, b) => arrays.frequency[b] - arrays.frequency[a]);

const watchers = { label: [], rule: [], theme: [] };
const watch = (what, act) => watchers[what].push(act);
const tell = (what) => watchers[what].forEach((act) => act());

let chosen = byFrequency[0];
function choose(label) {
  chosen = label;
  tell("label");
}

const byId = (id) => document.getElementById(id);
const rowsOf = (n) => `${whole(n)} ${n === 1 ? "row" : "rows"}`;
const whole = (value) => value.toLocaleString("en");
const decimals = (value, digits = 3) => Number.isFinite(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−") : "–";

// Make an element; strings are set as text, so that no name is interpreted as markup.
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Call at most once per frame, with the state at that time.
function oncePerFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; act(); });
  };
}
