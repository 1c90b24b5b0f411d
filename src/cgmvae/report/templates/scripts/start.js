// Start every part with the most frequent label, and redraw when the theme changes.

startSearch();
startLabel();
startGiven();
startThresholds();
startTable();
startHeatMap();
startMap();
startErrors();
document.addEventListener("theme", () => tell("theme"));
choose(chosen);
tell("rule");
document.documentElement.dataset.ready = "yes";
