// The rows with the largest errors, one page at a time.

const ROWS_A_PAGE = 8;
const chipsAKind = () => (innerWidth < 600 ? 6 : 14);

const COSTS = {
  wrong: (row) => counts.rowTrue[row] + counts.rowPredicted[row] - 2 * counts.rowBoth[row],
  f1: (row) => -2 * counts.rowBoth[row] / Math.max(counts.rowTrue[row] + counts.rowPredicted[row], 1),
  surprise: (row) => arrays.surprise[row],
};

const isWrong = (row, label) => truth[row * nLabels + label] !== isPredicted(row * nLabels + label, label);

function worstRows(order, label) {
  const cost = COSTS[order], rows = [];
  for (let row = 0; row < nRows; row++) {
    const wrong = label === null ? COSTS.wrong(row) > 0 : isWrong(row, label);
    if (wrong || (order === "surprise" && label === null)) rows.push(row);
  }
  const costs = Float64Array.from({ length: nRows }, (_, row) => cost(row));
  return rows.sort((a, b) => costs[b] - costs[a] || a - b);
}

function chipsOf(row) {
  const kinds = { missed: [], extra: [], found: [] };
  for (let label = 0; label < nLabels; label++) {
    const cell = row * nLabels + label, isTrue = truth[cell], predicted = isPredicted(cell, label);
    if (arrays.scores[cell] === UNKNOWN || !(isTrue || predicted)) continue;
    kinds[isTrue ? (predicted ? "found" : "missed") : "extra"].push({ label, score: arrays.scores[cell] / STEPS });
  }
  for (const list of Object.values(kinds)) list.sort((a, b) => b.score - a.score);
  return kinds;
}

function chip(kind, { label, score }) {
  return make("span", { className: `chip ${kind}` }, names[label], make("b", {}, score.toFixed(2)));
}

function chipLine(kind, list) {
  const line = make("p", { className: "labels" }, make("small", {}, kind)), most = chipsAKind();
  line.append(...list.slice(0, most).map((each) => chip(kind, each)));
  if (list.length > most) {
    const more = make("button", { type: "button", className: "link" }, `${whole(list.length - most)} more ${kind}`);
    more.addEventListener("click", () => more.replaceWith(...list.slice(most).map((each) => chip(kind, each))));
    line.append(more);
  }
  return line;
}

function errorItem(row) {
  const kinds = chipsOf(row), { missed, extra, found } = kinds;
  const facts = `${whole(missed.length)} missed · ${whole(extra.length)} extra · ${whole(found.length)} found`;
  const number = `row ${whole(arrays.numbers[row])}`, id = record.row_ids?.[row];
  const title = id === undefined ? [number.replace("r", "R")] : [id, make("span", {}, number)];
  const item = make("li", {}, make("h3", {}, ...title, make("span", {}, facts)));
  if (record.row_texts[row]) item.append(make("p", { className: "soft row-text" }, record.row_texts[row]));
  for (const [kind, list] of Object.entries(kinds)) if (list.length) item.append(chipLine(kind, list));
  item.dataset.row = arrays.numbers[row];
  return item;
}

function startErrors() {
  let page = 0;

  const show = oncePerFrame(() => {
    const label = byId("error-filter").checked ? chosen : null;
    const rows = worstRows(byId("error-order").value, label);
    const last = Math.max(0, Math.ceil(rows.length / ROWS_A_PAGE) - 1);
    page = Math.min(page, last);
    const start = page * ROWS_A_PAGE, shown = rows.slice(start, start + ROWS_A_PAGE);
    byId("error-filter-text").textContent = `only where ${names[chosen]} is wrong`;
    byId("error-rows").replaceChildren(...shown.map(errorItem));
    byId("error-page").textContent = rows.length === 0 ? "No row is wrong."
      : `${whole(start + 1)}–${whole(start + shown.length)} of ${whole(rows.length)} rows`;
    byId("error-previous").disabled = page === 0;
    byId("error-next").disabled = page === last;
  });

  const turn = (step) => { page += step; show(); byId("errors").scrollIntoView({ block: "start" }); };
  const restart = () => { page = 0; show(); };
  byId("error-previous").addEventListener("click", () => turn(-1));
  byId("error-next").addEventListener("click", () => turn(1));
  byId("error-order").addEventListener("change", restart);
  byId("error-filter").addEventListener("change", restart);
  watch("rule", show);
  watch("label", () => { if (byId("error-filter").checked) restart(); else show(); });
}
