// The labels in a plane, nearby ones similar: dots that do not overlap, names that fit, and lines to similar labels.

// Okabe and Ito's palette for color-blind readers, and a lighter one to be seen on a dark page.
const CLUSTERS = {
  light: ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8A8A"],
  dark: ["#4FA8E8", "#F0B93A", "#3FC79D", "#E6A6CF", "#B5E2FF", "#FF8A47", "#B4B4B4"],
};
const NEAREST_SHOWN = 5;

// Boxes that may not overlap, found by the squares of a coarse grid that they touch.
function makeBoard() {
  const squares = new Map(), size = 48;
  function* touched({ x, y, w, h }) {
    for (let i = Math.floor(x / size); i <= (x + w) / size; i++) {
      for (let j = Math.floor(y / size); j <= (y + h) / size; j++) yield i * 4096 + j;
    }
  }
  const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return {
    isFree: (box) => [...touched(box)].every((key) => (squares.get(key) ?? []).every((other) => !overlap(box, other))),
    take: (box) => { for (const key of touched(box)) squares.set(key, [...squares.get(key) ?? [], box]); },
  };
}

// Where a name of this length may be: beside its dot, above or below it, or at a corner.
function nameBoxes({ x, y }, radius, length) {
  const [w, h, gap] = [length + 4, 16, radius + 2], [left, right, above, below] = [x - gap - w, x + gap, y - gap - h, y + gap];
  return [[right, y - h / 2], [left, y - h / 2], [x - w / 2, above], [x - w / 2, below], [x, above], [x, below], [x - w, above], [x - w, below]]
    .map(([at, top]) => ({ x: at, y: top, w, h }));
}

function startMap() {
  const canvas = byId("map-canvas"), places = names.map((_, i) => ({ x: arrays.map[2 * i], y: arrays.map[2 * i + 1] }));
  const state = { pointed: -1, area: { left: 0, top: 0, side: 1 } };
  const radius = (label) => arrays.radius[label] * state.area.side;
  const onScreen = ({ x, y }, { side }, view) => ({ x: (x - view.x) / view.size * side, y: (y - view.y) / view.size * side });

  const draw = oncePerFrame(() => {
    const { context, width } = fitCanvas(canvas);
    state.area = { left: 0, top: 0, side: width };
    const points = places.map((place) => onScreen(place, state.area, viewport.view));
    const near = alikeLabels();
    context.strokeStyle = color("--rival");
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
    context.fillStyle = CLUSTERS[document.documentElement.dataset.theme][arrays.cluster[label]];
    context.fill();
    context.globalAlpha = 1;
    if (label !== chosen && label !== state.pointed) return;
    context.strokeStyle = color("--ink");
    context.lineWidth = 2.5;
    context.stroke();
  }

  // Draw names in order of importance; one that would cover a dot or another name, or leave the canvas, is omitted.
  function drawNames(context, points, order, width) {
    const board = makeBoard(), halo = color("--panel"), ink = color("--ink"), named = new Set();
    const isSeen = ({ x, y }) => x >= 0 && y >= 0 && x <= width && y <= width;
    points.forEach(({ x, y }, label) => {
      const r = radius(label);
      if (isSeen({ x, y })) board.take({ x: x - r, y: y - r, w: 2 * r, h: 2 * r });
    });
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const label of new Set(order)) {
      if (label < 0 || !isSeen(points[label])) continue;
      const must = label === chosen || label === state.pointed;
      context.font = `${must ? "700 13px" : "12px"} system-ui, sans-serif`;
      const text = shortened(context, names[label], width * 0.45), length = context.measureText(text).width;
      const inside = nameBoxes(points[label], radius(label), length)
        .filter((box) => box.x >= 0 && box.y >= 0 && box.x + box.w <= width && box.y + box.h <= width);
      const box = inside.find(board.isFree) ?? (must ? inside[0] : undefined);
      if (box === undefined) continue;
      board.take(box);
      named.add(label);
      context.strokeStyle = halo;
      context.lineWidth = 3.5;
      context.strokeText(text, box.x + 2, box.y + box.h / 2);
      context.fillStyle = ink;
      context.fillText(text, box.x + 2, box.y + box.h / 2);
    }
    canvas.dataset.named = String(named.size);
  }

  const alikeLabels = () => related(chosen, "alike").slice(0, NEAREST_SHOWN).map(({ other }) => other);

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
    if (label >= 0 && label !== chosen) {
      byId("map-say").textContent = `${names[label]} and ${names[chosen]}: ${relativeTo(label, chosen)}, together in ${rowsOf(together(label, chosen))}`;
      return;
    }
    const n = alikeLabels().length, most = n === 1 ? "the label that is" : `the ${n} labels that are`;
    byId("map-say").textContent = (n ? `${names[chosen]} is joined to ${most} most similar to it. ` : `No label is similar to ${names[chosen]}. `)
      + "Click another to choose it.";
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
