// Start every part, show the commonest label first, and tell all of them when the theme changes.

startSearch();
startLabel();
startThresholds();
startHeatMap();
startMap();
startErrors();
document.addEventListener("theme", () => tell("theme"));
choose(chosen);
tell("rule");
document.documentElement.dataset.ready = "yes";
