// One label: its metrics under the current thresholds, its own threshold, and related labels.

const N_NEIGHBORS = 10;

// Similarity and co-occurrence disagree where the two ranks of a label differ by half of the list, and
// co-occurrence is on the other side of chance.
const DISAGREEMENT = 0.5;

function ranks(values) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]);
  const rank = new Float64Array(values.length);
  order.forEach((place, i) => { rank[place] = values.length > 1 ? i / (values.length - 1) : 0; });
  return rank;
}

// The other labels with similarity, association, and the difference of the two ranks.
function neighbors(label) {
  const others = [...names.keys()].filter((other) => other !== label);
  const alike = others.map((other) => similarity(label, other));
  const joint = others.map((other) => correlation(label, other));
  const measured = joint.map((value, i) => (Number.isNaN(value) ? -1 : i)).filter((i) => i >= 0);
  const gap = new Float64Array(others.length);
  const alikeRank = ranks(measured.map((i) => alike[i])), jointRank = ranks(measured.map((i) => joint[i]));
  measured.forEach((i, place) => {
    const apart = alikeRank[place] - jointRank[place];
    gap[i] = apart * joint[i] < 0 ? apart : 0;
  });
  const beyond = (other) => knowsResidual ? residual(label, other) : NaN;
  return others.map((other, i) => ({ other, alike: alike[i], joint: joint[i], gap: gap[i], beyond: beyond(other) }));
}

// Which labels are listed, in which order, and what is said if there are none.
const ORDERS = {
  alike: {
    compare: (a, b) => b.alike - a.alike,
    keep: ({ alike }) => alike > alikeFrom,
    none: `No label is similar to it: each of its similarities is below the upper quarter of all pairs, or below ${record.floor}.`,
  },
  together: {
    compare: (a, b) => b.joint - a.joint,
    keep: ({ joint }) => joint >= record.floor,
    none: `No label has a correlation of ${record.floor} or more with it.`,
  },
  beyond: {
    compare: (a, b) => Math.abs(b.beyond) - Math.abs(a.beyond),
    keep: ({ other }) => isCertain(chosen, other),
    none: "Beyond the features, no label goes with it or excludes it.",
  },
  disagree: {
    compare: (a, b) => Math.abs(b.gap) - Math.abs(a.gap),
    keep: ({ gap }) => Math.abs(gap) >= DISAGREEMENT,
    none: "Similarity and co-occurrence agree for all labels.",
  },
};

const related = (label, order) => neighbors(label).filter(ORDERS[order].keep).sort(ORDERS[order].compare);

function neighborRow({ other, alike, gap, beyond }) {
  const link = make("button", { type: "button", className: "link" }, names[other]);
  link.addEventListener("click", () => choose(other));
  const name = make("td", {}, link);
  if (Math.abs(gap) >= DISAGREEMENT) {
    const words = gap > 0 ? "≠ more similar than together" : "≠ more together than similar";
    name.append(make("span", { className: "disagree" }, words));
  }
  const cells = [decimals(alike, 2), whole(together(chosen, other)), decimals(lift(chosen, other), 2)];
  if (knowsResidual) cells.push(isCertain(chosen, other) ? decimals(beyond, 2) : "–");
  const row = make("tr", {}, name, ...cells.map((text) => make("td", {}, text)));
  row.dataset.label = other;
  return row;
}

function showNeighbors() {
  const order = document.querySelector("[name=neighbor-order]:checked").value;
  const best = related(chosen, order).slice(0, N_NEIGHBORS).map(neighborRow);
  const none = make("tr", {}, make("td", { colSpan: 5, className: "none" }, ORDERS[order].none));
  byId("neighbor-rows").replaceChildren(...(best.length || nLabels === 1 ? best : [none]));
}

function showLabelFacts() {
  const isTrue = counts.labelTrue[chosen], predicted = counts.labelPredicted[chosen], both = counts.labelBoth[chosen];
  const facts = [
    [record.reference, whole(arrays.frequency[chosen])],
    ["rows with it", whole(isTrue)],
    ["rows predicted", whole(predicted)],
    ["precision", decimals(both / predicted, 2)],
    ["recall", decimals(both / isTrue, 2)],
    ["F1", decimals(2 * both / (isTrue + predicted), 3)],
  ];
  byId("label-name").textContent = names[chosen];
  byId("label-facts").replaceChildren(
    ...facts.map(([term, value]) => make("div", {}, make("dt", {}, term), make("dd", {}, value))));
  showThreshold("label-threshold", rule.thresholds[chosen]);
}

// F1 at each hundredth, from one pass over the label's column.
function labelCurve(label) {
  const all = new Uint32Array(STEPS + 2), positive = new Uint32Array(STEPS + 2);
  for (let row = 0, cell = label; row < nRows; row++, cell += nLabels) {
    const score = arrays.scores[cell];
    if (score === UNKNOWN) continue;
    all[score]++;
    positive[score] += truth[cell];
  }
  const f1 = [];
  for (let score = STEPS, predicted = 0, both = 0; score >= 0; score--) {
    predicted += all[score];
    both += positive[score];
    if (score % 100 === 0) f1.unshift(2 * both / Math.max(counts.labelTrue[label] + predicted, 1));
  }
  return f1;
}

const SVG = "http://www.w3.org/2000/svg";
function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function showCurve() {
  const x = (threshold) => 22 + 270 * threshold, y = (f1) => 78 - 70 * f1;
  const line = labelCurve(chosen).map((f1, i) => `${x(i / 100).toFixed(1)},${y(f1).toFixed(1)}`).join(" ");
  const at = x(rule.thresholds[chosen] / STEPS);
  const text = (content, px, py, anchor) => {
    const element = shape("text", { x: px, y: py, "text-anchor": anchor, "font-size": 10, fill: "var(--soft)" });
    element.textContent = content;
    return element;
  };
  byId("label-curve").replaceChildren(
    shape("path", { d: `M22 78H292M22 8H292`, stroke: "var(--line)", fill: "none" }),
    shape("line", { x1: at, x2: at, y1: 8, y2: 78, stroke: "var(--missed)", "stroke-width": 1.5, "stroke-dasharray": "4 3" }),
    shape("polyline", { points: line, fill: "none", stroke: "var(--accent)", "stroke-width": 2, "stroke-linejoin": "round" }),
    text("1", 16, 12, "end"), text("0", 16, 81, "end"),
    text("0", 22, 92, "middle"), text("0.5", x(0.5), 92, "middle"), text("1", 292, 92, "middle"));
}

function showThreshold(id, threshold) {
  byId(id).value = threshold;
  byId(id).setAttribute("aria-valuetext", (threshold / STEPS).toFixed(4).replace(/0{1,2}$/, ""));
  byId(`${id}-number`).value = (threshold / STEPS).toFixed(4).replace(/0{1,2}$/, "");
}

// Keep a slider and its number in sync; the number takes any of the ten thousand steps.
function onThreshold(id, act) {
  byId(id).addEventListener("input", () => act(Number(byId(id).value)));
  byId(`${id}-number`).addEventListener("change", (event) => {
    const value = Number(event.target.value);
    if (event.target.value !== "" && value >= 0 && value <= 1) act(Math.round(value * STEPS));
    else tell("rule");
  });
}

function startLabel() {
  onThreshold("label-threshold", (threshold) => setLabel(chosen, threshold));
  byId("neighbor-order").addEventListener("change", showNeighbors);
  watch("label", () => { showLabelFacts(); showNeighbors(); showCurve(); });
  watch("rule", () => { showLabelFacts(); showCurve(); });
}
