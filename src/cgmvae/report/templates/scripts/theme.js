// Light or dark: the system setting, until the reader chooses.
(() => {
  "use strict";
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => {
    root.dataset.theme = stored() ?? root.dataset.chosen ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event("theme"));
  };
  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const next = root.dataset.theme === "dark" ? "light" : "dark";
      root.dataset.chosen = next;
      try { localStorage.setItem("theme", next); } catch { /* a page from a file may not store */ }
      apply();
    });
  });
  apply();
})();
