// All pairs of labels as a heat map: an image of one pixel per pair, drawn larger.

// Blue over neutral to orange: distinguishable for color-blind readers, in light and dark.
const RAMPS = {
  light: [[8, 69, 120], [90, 155, 205], [246, 246, 246], [238, 150, 80], [150, 58, 0]],
  dark: [[125, 200, 250], [45, 110, 160], [32, 38, 44], [165, 85, 30], [255, 170, 100]],
};
const NAME_ROOM = 12; // pixels per name

function rampColour(ramp, share) {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[low].map((value, i) => Math.round(value + (ramp[low + 1][i] - value) * (at - low)));
}

function startHeatMap() {
  const canvas = byId("heat-canvas"), picture = make("canvas", { width: nLabels, height: nLabels });
  const kinds = { similarity, correlation };
  const state = { order: arrays.order, limit: 1, cursor: null, area: { left: 0, top: 0, side: 1 } };

  // The largest absolute value without the most extreme pairs, so that a few do not fade the rest.
  function limitOf(values, steps) {
    const found = new Uint32Array(2 ** 15 + 1);
    for (const value of values) found[Math.abs(value)]++;
    found[-NOT_MEASURED] = 0;
    let above = 0.005 * sum(found), size = found.length - 1;
    while (size > 0 && (above -= found[size]) >= 0) size--;
    return Math.max(size / steps, 0.05);
  }

  function paint() {
    const value = kinds[byId("heat-value").value];
    const ramp = RAMPS[document.documentElement.dataset.theme];
    const table = Array.from({ length: 256 }, (_, i) => rampColour(ramp, i / 255));
    const image = new ImageData(nLabels, nLabels), pixels = new Uint32Array(image.data.buffer);
    const packed = table.map(([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);
    const [r, g, b] = ramp[2], empty = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    for (let i = 0; i < nLabels; i++) {
      for (let j = 0; j <= i; j++) {
        const size = value(state.order[i], state.order[j]);
        const shade = Number.isNaN(size) ? empty : packed[Math.min(255, Math.max(0, Math.round(127.5 + 127.5 * size / state.limit)))];
        pixels[i * nLabels + j] = pixels[j * nLabels + i] = shade;
      }
    }
    picture.getContext("2d").putImageData(image, 0, 0);
    byId("heat-ramp").style.background = `linear-gradient(to right, ${ramp.map((c) => `rgb(${c})`).join(", ")})`;
    byId("heat-low").textContent = decimals(-state.limit, 2);
    byId("heat-high").textContent = decimals(state.limit, 2);
    draw();
  }

  function reorder() {
    state.order = byId("heat-order").value === "name" ? byName : arrays.order;
    const which = byId("heat-value").value;
    state.limit = limitOf(arrays[which], 10000);
    paint();
  }

  const draw = oncePerFrame(() => {
    const { context, width } = fitCanvas(canvas, (w) => w);
    const { x, y, size } = viewport.view, cells = nLabels * size;
    const named = (width * 0.74) / cells >= NAME_ROOM, gutter = named ? gutterFor(context, width * 0.26) : 0;
    const side = width - gutter, cell = side / cells;
    state.area = { left: gutter, top: 0, side };
    context.imageSmoothingEnabled = cell < 1;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, x * nLabels, y * nLabels, cells, cells, gutter, 0, side, side);
    if (named) drawNames(context, { gutter, side, cell, cells });
    mark(context, state.order.indexOf(chosen), { gutter, side, cell });
    canvas.dataset.order = byId("heat-order").value;
    canvas.dataset.shown = String(Math.round(cells));
  });

  function gutterFor(context, most) {
    context.font = "13px system-ui, sans-serif";
    return Math.min(most, 10 + Math.max(...names.map((name) => context.measureText(name).width)));
  }

  function drawNames(context, { gutter, side, cell, cells }) {
    const { x, y } = viewport.view, font = Math.min(13, cell - 1);
    context.font = `${font}px system-ui, sans-serif`;
    context.fillStyle = colour("--ink");
    context.textBaseline = "middle";
    for (let i = Math.floor(y * nLabels); i < Math.min(nLabels, y * nLabels + cells); i++) {
      const at = (i + 0.5 - y * nLabels) * cell;
      if (at < font / 2 || at > side - font / 2) continue;
      const text = shortened(context, names[state.order[i]], gutter - 8);
      context.textAlign = "right";
      context.fillText(text, gutter - 6, at);
    }
    context.textAlign = "right";
    for (let i = Math.floor(x * nLabels); i < Math.min(nLabels, x * nLabels + cells); i++) {
      const at = gutter + (i + 0.5 - x * nLabels) * cell;
      if (at < gutter + font / 2 || at > gutter + side - font / 2) continue;
      context.save();
      context.translate(at, side + 6);
      context.rotate(-Math.PI / 2);
      context.fillText(shortened(context, names[state.order[i]], gutter - 8), 0, 0);
      context.restore();
    }
  }

  // Frame the row of the chosen label and the cell under the cursor.
  function mark(context, row, { gutter, side, cell }) {
    const { x, y } = viewport.view;
    context.save();
    context.beginPath();
    context.rect(gutter, 0, side, side);
    context.clip();
    context.strokeStyle = colour("--ink");
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
      : `${names[a]} and ${names[b]}: similarity ${decimals(similarity(a, b), 2)}, correlation ${decimals(correlation(a, b), 2)}, together in ${whole(together(a, b))} rows, lift ${decimals(lift(a, b), 2)}`;
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
