// All pairs of labels as a heat map: an image of one pixel per pair, drawn larger, with every name that fits.

// Blue over neutral to orange: distinguishable for color-blind readers, in light and dark.
const RAMPS = {
  light: [[8, 69, 120], [90, 155, 205], [246, 246, 246], [238, 150, 80], [150, 58, 0]],
  dark: [[125, 200, 250], [45, 110, 160], [32, 38, 44], [165, 85, 30], [255, 170, 100]],
};
const SMALLEST_LIMIT = 0.1; // smaller differences look faint
const NAME_ROOM = 12, NAME_SHARE = 0.24; // pixels per name, and the share of the width for names

function rampColor(ramp, share) {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[low].map((value, i) => Math.round(value + (ramp[low + 1][i] - value) * (at - low)));
}

function startHeatMap() {
  const canvas = byId("heat-canvas"), picture = make("canvas", { width: nLabels, height: nLabels });
  const kinds = { similarity, correlation, residual }, which = () => byId("heat-value").value;
  const state = { order: arrays.order, middle: 0, limit: 1, cursor: null, area: { left: 0, top: 0, side: 1 } };

  // The largest distance from the middle without the most extreme pairs, so that a few do not fade the rest.
  function limitOf(values, steps, middle) {
    const sizes = values.filter((value) => value !== NOT_MEASURED).map((value) => Math.abs(value - middle * steps)).sort();
    return Math.max(sizes.length ? sizes[Math.floor(0.995 * (sizes.length - 1))] / steps : 0, SMALLEST_LIMIT);
  }

  function paint() {
    const value = kinds[which()];
    const ramp = RAMPS[document.documentElement.dataset.theme];
    const table = Array.from({ length: 256 }, (_, i) => rampColor(ramp, i / 255));
    const image = new ImageData(nLabels, nLabels), pixels = new Uint32Array(image.data.buffer);
    const packed = table.map(([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);
    const [r, g, b] = ramp[2], empty = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    for (let i = 0; i < nLabels; i++) {
      for (let j = 0; j <= i; j++) {
        const size = value(state.order[i], state.order[j]);
        const shade = Number.isNaN(size) ? empty : packed[Math.min(255, Math.max(0, Math.round(127.5 + 127.5 * (size - state.middle) / state.limit)))];
        pixels[i * nLabels + j] = pixels[j * nLabels + i] = shade;
      }
    }
    picture.getContext("2d").putImageData(image, 0, 0);
    byId("heat-ramp").style.background = `linear-gradient(to right, ${ramp.map((c) => `rgb(${c})`).join(", ")})`;
    for (const [id, value] of [["low", -1], ["middle", 0], ["high", 1]]) {
      byId(`heat-${id}`).textContent = decimals(state.middle + value * state.limit, 2);
    }
    byId("heat-middle").textContent += which() === "similarity" ? " (median of all pairs)" : " (independent)";
    draw();
  }

  function reorder() {
    state.order = byId("heat-order").value === "name" ? byName : arrays.order;
    state.middle = which() === "similarity" ? medianSimilarity || 0 : 0;
    state.limit = limitOf(arrays[which()], 10000, state.middle);
    paint();
  }

  const draw = oncePerFrame(() => {
    const { context, width } = fitCanvas(canvas);
    const { x, y, size } = viewport.view, cells = nLabels * size;
    const gutter = gutterFor(context, width * NAME_SHARE);
    const side = width - gutter, cell = side / cells;
    state.area = { left: gutter, top: 0, side };
    context.imageSmoothingEnabled = cell < 1;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, x * nLabels, y * nLabels, cells, cells, gutter, 0, side, side);
    drawNames(context, { gutter, side, cell, cells });
    mark(context, state.order.indexOf(chosen), { gutter, side, cell });
    canvas.dataset.order = byId("heat-order").value;
    canvas.dataset.shown = String(Math.round(cells));
  });

  function gutterFor(context, most) {
    context.font = "13px system-ui, sans-serif";
    return Math.min(most, 10 + Math.max(...names.map((name) => context.measureText(name).width)));
  }

  // The visible labels from a start on, and where they are; if not all names fit, every second, third, …
  function namedFrom(start, { side, cell, cells }) {
    const font = Math.min(13, Math.max(cell, NAME_ROOM) - 1), every = Math.ceil(NAME_ROOM / cell), found = [];
    for (let i = Math.floor(start); i < Math.min(nLabels, start + cells); i++) {
      const at = (i + 0.5 - start) * cell;
      if (i % every === 0 && at >= font / 2 && at <= side - font / 2) found.push([state.order[i], at]);
    }
    return { font, found };
  }

  function drawNames(context, { gutter, ...sizes }) {
    const { x, y } = viewport.view, down = namedFrom(y * nLabels, sizes), across = namedFrom(x * nLabels, sizes);
    context.font = `${down.font}px system-ui, sans-serif`;
    context.fillStyle = color("--ink");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const [label, at] of down.found) context.fillText(shortened(context, names[label], gutter - 8), gutter - 6, at);
    for (const [label, at] of across.found) {
      context.save();
      context.translate(gutter + at, sizes.side + 6);
      context.rotate(-Math.PI / 2);
      context.fillText(shortened(context, names[label], gutter - 8), 0, 0);
      context.restore();
    }
    canvas.dataset.named = String(down.found.length);
  }

  // Frame the row of the chosen label and the cell under the cursor.
  function mark(context, row, { gutter, side, cell }) {
    const { x, y } = viewport.view;
    context.save();
    context.beginPath();
    context.rect(gutter, 0, side, side);
    context.clip();
    context.strokeStyle = color("--ink");
    context.lineWidth = 1.5;
    if (cell < 3) context.strokeRect(gutter - 2, (row + 0.5 - y * nLabels) * cell, side + 4, 0);
    else context.strokeRect(gutter - 2, (row - y * nLabels) * cell, side + 4, cell);
    if (state.cursor) {
      const { i, j } = state.cursor, room = Math.max(cell, 6), shift = (room - cell) / 2;
      context.lineWidth = 2.5;
      context.strokeRect(gutter + (j - x * nLabels) * cell - shift, (i - y * nLabels) * cell - shift, room, room);
    }
    context.restore();
  }

  function say() {
    if (!state.cursor) {
      byId("heat-say").textContent = `${names[chosen]} is framed. Point at a pair, or click it to choose the label of its row.`;
      return;
    }
    const a = state.order[state.cursor.i], b = state.order[state.cursor.j];
    byId("heat-say").textContent = a === b ? names[a]
      : `${names[a]} and ${names[b]}: ${relativeTo(a, b)}, correlation ${decimals(correlation(a, b), 2)}${knowsResidual ? ` (beyond the features ${decimals(residual(a, b), 2)})` : ""}, together in ${rowsOf(together(a, b))}, lift ${decimals(lift(a, b), 2)}`;
  }

  const cellAt = ({ x, y }) => ({ i: Math.floor(y * nLabels), j: Math.floor(x * nLabels) });

  function point(cursor) {
    state.cursor = cursor;
    say();
    draw();
  }

  const viewport = makeViewport(canvas, {
    buttons: document.querySelectorAll("#heat [data-zoom]"),
    maxZoom: Math.max(1, nLabels / 6),
    area: () => state.area,
    focus: () => { const at = (state.order.indexOf(chosen) + 0.5) / nLabels; return { x: at, y: at }; },
    redraw: () => draw(),
    hover: (at) => point(at && cellAt(at)),
    pick: (at) => { point(cellAt(at)); choose(state.order[state.cursor.i]); },
    move: (dx, dy) => {
      const now = state.cursor ?? { i: state.order.indexOf(chosen), j: state.order.indexOf(chosen) };
      if (dx === 0 && dy === 0) return choose(state.order[now.i]);
      const clamp = (value) => Math.min(Math.max(value, 0), nLabels - 1);
      point({ i: clamp(now.i + dy), j: clamp(now.j + dx) });
      viewport.reveal((state.cursor.j + 0.5) / nLabels, (state.cursor.i + 0.5) / nLabels);
    },
  });

  byId("heat-value").addEventListener("change", reorder);
  byId("heat-order").addEventListener("change", reorder);
  canvas.addEventListener("blur", () => point(null));
  watch("label", () => { say(); draw(); });
  watch("theme", paint);
  new ResizeObserver(draw).observe(canvas.parentElement);
  reorder();
}
