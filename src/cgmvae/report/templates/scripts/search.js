// Find a label by part of its name: a combobox for keyboard and pointer.

const MAX_MATCHES = 200;

function matching(text) {
  const wanted = text.trim().toLowerCase();
  const found = [];
  for (const label of byFrequency) {
    const at = names[label].toLowerCase().indexOf(wanted);
    if (at >= 0) found.push({ label, at });
  }
  return found.sort((a, b) => (a.at > 0) - (b.at > 0));
}

function highlighted(name, at, length) {
  if (length === 0) return [name];
  return [name.slice(0, at), make("mark", {}, name.slice(at, at + length)), name.slice(at + length)];
}

function startSearch() {
  const input = byId("search"), list = byId("matches");
  let matches = [], active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function activate(place) {
    active = place;
    for (const [i, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(i === place));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    list.children[place].scrollIntoView({ block: "nearest" });
  }

  // Opened without typing, it lists all labels, the most frequent first.
  function open(text) {
    const length = text.trim().length, found = matching(text);
    matches = found.slice(0, MAX_MATCHES);
    list.replaceChildren(...matches.map(({ label, at }, i) => {
      const name = make("div", {}, ...highlighted(names[label], at, length));
      const rows = make("span", {}, `${whole(arrays.frequency[label])} rows`);
      const item = make("li", { id: `match-${i}`, role: "option" }, name, rows);
      item.setAttribute("aria-selected", "false");
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(i); });
      return item;
    }));
    if (matches.length === 0) list.append(make("li", { ariaDisabled: "true" }, "No label matches."));
    const more = found.length - matches.length;
    if (more) list.append(make("li", { ariaDisabled: "true" }, `${whole(more)} more labels: type part of a name.`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(length ? Math.min(0, matches.length - 1) : matches.findIndex(({ label }) => label === chosen));
  }

  function take(place) {
    input.value = names[matches[place].label];
    choose(matches[place].label);
    close();
  }

  input.addEventListener("input", () => open(input.value));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => { if (list.hidden) { input.select(); open(""); } });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) return open("");
      const step = event.key === "ArrowDown" ? 1 : -1, n = matches.length;
      if (n) activate(active < 0 && step < 0 ? n - 1 : (active + step + n) % n);
    } else if (event.key === "Enter" && !list.hidden && active >= 0) {
      event.preventDefault();
      take(active);
    } else if (event.key === "Escape") {
      if (list.hidden) input.value = "";
      close();
    }
  });
  watch("label", () => { if (document.activeElement !== input) input.value = names[chosen]; });
}
