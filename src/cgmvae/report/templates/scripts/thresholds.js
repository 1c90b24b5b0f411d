// The threshold for all labels, and the resulting five metrics.

function ruleText() {
  if (record.rule.kind === "top-k") return `This model's own rule predicts the ${record.rule.k} most probable labels of every row.`;
  if (record.rule.kind === "per-label") return "This model's own rule has a threshold for each label.";
  return `This model's own threshold is ${decimals(record.rule.threshold / STEPS, 2)}.`;
}

function showMetrics() {
  for (const [name, value] of Object.entries(metrics())) {
    const change = value - ownMetrics[name], delta = byId(`delta-${name}`), moved = Math.abs(change) >= 0.0005;
    byId(`live-${name}`).textContent = decimals(value);
    delta.textContent = name === "precision_at_1" ? "independent of the threshold" : moved ? `${change > 0 ? "▲ +" : "▼ −"}${decimals(Math.abs(change))}` : "";
    delta.className = `delta ${moved ? (change > 0 ? "up" : "down") : ""}`;
  }
  const given = sum(counts.labelPredicted), there = sum(counts.labelTrue), right = sum(counts.labelBoth);
  byId("live-say").textContent =
    `${decimals(given / nRows, 1)} predicted labels per row, of ${decimals(there / nRows, 1)} true ones; ` +
    `${decimals(100 * right / given, 0)}% of the predicted labels are correct, ${decimals(100 * right / there, 0)}% of the true labels are found. ` +
    "Choosing a threshold here would overfit it to these rows; choose it on other rows.";
}

function showByHand() {
  byId("by-hand").replaceChildren(...[...rule.byHand].map((label) => {
    const text = `${names[label]} ${(rule.thresholds[label] / STEPS).toFixed(2)} ×`;
    const button = make("button", { type: "button", title: "Reset to the threshold for all labels" }, text);
    button.addEventListener("click", () => releaseLabel(label));
    return button;
  }));
}

function showRule() {
  showThreshold("threshold", rule.shared);
  byId("own").disabled = rule.isOwn;
  showMetrics();
  showByHand();
}

function startThresholds() {
  byId("own-rule").textContent = ruleText();
  onThreshold("threshold", setAll);
  byId("own").addEventListener("click", () => { restoreOwnRule(); tell("rule"); });
  watch("rule", showRule);
}
