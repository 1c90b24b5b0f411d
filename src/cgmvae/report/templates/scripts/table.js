// The table of all labels: sorted by any column, and saved as CSV.

function startTable() {
  const table = byId("label-table"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const textOf = (row, column) => row.cells[column].firstChild.textContent.trim();

  // Undefined values come last in both directions.
  function sortBy(column) {
    const now = heads[column].getAttribute("aria-sort"), sign = now === "ascending" ? -1 : 1;
    const number = (row) => parseFloat(textOf(row, column).replace("−", "-"));
    const compare = column === 0 || heads[column].dataset.text !== undefined
      ? (a, b) => sign * collator.compare(textOf(a, column), textOf(b, column))
      : (a, b) => Number.isNaN(number(a)) - Number.isNaN(number(b)) || sign * (number(a) - number(b));
    body.append(...[...body.rows].sort(compare));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  }

  function save() {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text.replace("–", "").replace("−", "-"));
    const bounds = (row, column) => [...row.cells[column].querySelectorAll("small span")].map((bound) => bound.textContent);
    const textsOf = (row, column) => {
      const text = textOf(row, column);
      if (heads[column].dataset.interval === undefined) return [text];
      const [low = "", high = ""] = row === table.rows[0] ? [`${text} 95% from`, `${text} 95% to`] : bounds(row, column);
      return [text, low, high];
    };
    const lines = [...table.rows].map((row) => heads.flatMap((_, column) => textsOf(row, column)).map(quoted).join(","));
    const address = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    make("a", { href: address, download: "labels.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sortBy(column)));
  body.addEventListener("click", ({ target }) => { if (target.dataset.label) choose(Number(target.dataset.label)); });
  byId("label-csv").addEventListener("click", save);
}
