// The labels in a plane, nearby ones similar: names that fit, and lines to the nearest labels.

// Okabe and Ito's palette for color-blind readers.
const CLUSTERS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8A8A"];
const NEAREST_SHOWN = 5, MOST_NAMES = 70;

function unitPlaces() {
  const xs = [], ys = [];
  for (let i = 0; i < nLabels; i++) { xs.push(arrays.map[2 * i]); ys.push(-arrays.map[2 * i + 1]); }
  const [minX, maxX, minY, maxY] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = 0.86 / (Math.max(maxX - minX, maxY - minY) || 1);
  return xs.map((x, i) => ({
    x: 0.5 + (x - (minX + maxX) / 2) * scale,
    y: 0.5 + (ys[i] - (minY + maxY) / 2) * scale,
  }));
}

const boxAt = (start, y, length) => ({ x: start - 2, y: y - 9, w: length + 4, h: 18 });
const isFree = (taken, box) => taken.every(
  (b) => box.x >= b.x + b.w || b.x >= box.x + box.w || box.y >= b.y + b.h || b.y >= box.y + box.h);

function startMap() {
  const canvas = byId("map-canvas"), places = unitPlaces();
  const state = { pointed: -1, area: { left: 0, top: 0, side: 1 } };
  const most = Math.max(1, ...arrays.frequency);
  const radius = (label) => (nLabels > 150 ? 2.2 : 4) + 6 * Math.sqrt(arrays.frequency[label] / most);
  const onScreen = ({ x, y }, { side }, view) => ({ x: (x - view.x) / view.size * side, y: (y - view.y) / view.size * side });

  const draw = oncePerFrame(() => {
    const { context, width } = fitCanvas(canvas, (w) => w);
    state.area = { left: 0, top: 0, side: width };
    const points = places.map((place) => onScreen(place, state.area, viewport.view));
    const near = neighbours(chosen).sort(ORDERS.alike).slice(0, NEAREST_SHOWN).map(({ other }) => other);
    context.strokeStyle = colour("--rival");
    context.lineWidth = 1;
    for (const other of near) {
      context.beginPath();
      context.moveTo(points[chosen].x, points[chosen].y);
      context.lineTo(points[other].x, points[other].y);
      context.stroke();
    }
    for (const label of byFrequency) dot(context, points[label], label);
    if (state.pointed >= 0) dot(context, points[state.pointed], state.pointed);
    dot(context, points[chosen], chosen);
    drawNames(context, points, [chosen, state.pointed, ...near, ...byFrequency], width);
  });

  function dot(context, { x, y }, label) {
    context.beginPath();
    context.arc(x, y, radius(label), 0, 2 * Math.PI);
    context.globalAlpha = label === chosen || label === state.pointed ? 1 : 0.75;
    context.fillStyle = CLUSTERS[arrays.cluster[label]];
    context.fill();
    context.globalAlpha = 1;
    if (label !== chosen && label !== state.pointed) return;
    context.strokeStyle = colour("--ink");
    context.lineWidth = 2.5;
    context.stroke();
  }

  // Draw names in order of importance; one that would overlap another or leave the canvas is omitted.
  function drawNames(context, points, order, width) {
    const taken = [], halo = colour("--panel"), ink = colour("--ink");
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const label of new Set(order)) {
      if (label < 0 || taken.length >= MOST_NAMES) continue;
      const must = label === chosen || label === state.pointed, { x, y } = points[label];
      if (x < 0 || y < 0 || x > width || y > width) continue;
      context.font = `${must ? "700 13px" : "12px"} system-ui, sans-serif`;
      const text = shortened(context, names[label], width * 0.45), length = context.measureText(text).width;
      const right = x + radius(label) + 4, left = x - radius(label) - 4 - length;
      const starts = [right, left].filter((start) => start >= 0 && start + length <= width && y >= 9 && y + 9 <= width);
      const start = starts.find((place) => isFree(taken, boxAt(place, y, length))) ?? (must ? starts[0] : undefined);
      if (start === undefined) continue;
      taken.push(boxAt(start, y, length));
      context.strokeStyle = halo;
      context.lineWidth = 3.5;
      context.strokeText(text, start, y);
      context.fillStyle = ink;
      context.fillText(text, start, y);
    }
  }

  function nearestTo(at, reach = Infinity) {
    let best = -1, distance = reach;
    places.forEach((place, label) => {
      const gap = Math.hypot(place.x - at.x, place.y - at.y);
      if (gap < distance) [best, distance] = [label, gap];
    });
    return best;
  }

  function point(label) {
    if (label === state.pointed) return;
    state.pointed = label;
    canvas.dataset.pointed = String(label);
    say();
    draw();
  }

  function say() {
    const label = state.pointed;
    byId("map-say").textContent = label < 0 || label === chosen
      ? `${names[chosen]} is joined to its ${Math.min(NEAREST_SHOWN, nLabels - 1)} nearest labels. Click another to choose it.`
      : `${names[label]}: similarity to ${names[chosen]} ${decimals(similarity(label, chosen), 2)}, together in ${whole(together(label, chosen))} rows`;
  }

  // The nearest label in a direction; the distance across counts double, so that an arrow goes where it points.
  function go(dx, dy) {
    const from = places[chosen];
    let best = -1, cost = Infinity;
    places.forEach(({ x, y }, label) => {
      const ahead = (x - from.x) * dx + (y - from.y) * dy, aside = Math.abs((x - from.x) * dy) + Math.abs((y - from.y) * dx);
      if (label !== chosen && ahead > 1e-6 && ahead + 2 * aside < cost) [best, cost] = [label, ahead + 2 * aside];
    });
    if (best < 0) return;
    choose(best);
    viewport.reveal(places[best].x, places[best].y);
  }

  const reach = () => 22 / state.area.side * viewport.view.size;
  const viewport = makeViewport(canvas, {
    buttons: document.querySelectorAll("#map [data-zoom]"),
    maxZoom: 40,
    area: () => state.area,
    focus: () => places[chosen],
    redraw: () => draw(),
    hover: (at) => point(at ? nearestTo(at, reach()) : -1),
    pick: (at) => { const label = nearestTo(at, reach()); if (label >= 0) choose(label); },
    move: (dx, dy) => { if (dx || dy) go(dx, dy); },
  });
  watch("label", () => { say(); draw(); });
  watch("theme", draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}
