// Zooming and panning of a square image on a canvas: by buttons, drag, pinch, double click, Ctrl + wheel
// (the wheel alone scrolls the page) and keyboard. The image is the unit square.

function makeViewport(canvas, { buttons, maxZoom, area, focus, redraw, hover, pick, move }) {
  const view = { x: 0, y: 0, size: 1 };
  const touches = new Map(); // pointers that are down
  let drag = null, pinch = null;

  const clamp = (value) => Math.min(Math.max(value, 0), 1 - view.size);

  function show(x, y, size) {
    view.size = Math.min(1, Math.max(1 / maxZoom, size));
    view.x = clamp(x);
    view.y = clamp(y);
    canvas.style.touchAction = view.size < 1 ? "none" : "pan-y";
    redraw();
  }

  const isSeen = ({ x, y }) => x >= view.x && x <= view.x + view.size && y >= view.y && y <= view.y + view.size;

  // The default center of a zoom is the chosen label if it is visible, else the middle.
  function anchor() {
    const at = focus();
    return isSeen(at) ? at : { x: view.x + view.size / 2, y: view.y + view.size / 2 };
  }

  function zoom(factor, at = anchor()) {
    const size = Math.min(1, Math.max(1 / maxZoom, view.size / factor)), share = size / view.size;
    show(at.x - (at.x - view.x) * share, at.y - (at.y - view.y) * share, size);
  }

  // Make a point visible.
  function reveal(x, y) {
    if (isSeen({ x, y })) return redraw();
    show(x - view.size / 2, y - view.size / 2, view.size);
  }

  function place(event) {
    const box = canvas.getBoundingClientRect(), { left, top, side } = area();
    const x = (event.clientX - box.left - left) / side, y = (event.clientY - box.top - top) / side;
    if (x < 0 || x >= 1 || y < 0 || y >= 1) return null;
    return { x: view.x + x * view.size, y: view.y + y * view.size };
  }

  function spread() {
    const [a, b] = touches.values();
    const middle = { clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 };
    return { distance: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) || 1, at: place(middle) };
  }

  function release(event) {
    touches.delete(event.pointerId);
    if (touches.size < 2) pinch = null;
    drag = null;
  }

  canvas.addEventListener("pointerdown", (event) => {
    touches.set(event.pointerId, event);
    if (touches.size === 2) { pinch = spread(); drag = null; return; }
    drag = { px: event.clientX, py: event.clientY, x: view.x, y: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (touches.has(event.pointerId)) touches.set(event.pointerId, event);
    if (pinch) {
      const now = spread();
      zoom(now.distance / pinch.distance, now.at ?? undefined);
      pinch = now;
      return;
    }
    if (!drag) return hover(place(event));
    const dx = event.clientX - drag.px, dy = event.clientY - drag.py, { side } = area();
    drag.moved ||= Math.hypot(dx, dy) > 4;
    if (drag.moved && view.size < 1) show(drag.x - dx / side * view.size, drag.y - dy / side * view.size, view.size);
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = place(event);
    if (drag && !drag.moved && at) pick(at);
    release(event);
  });
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hover(null); }); // a finger that was lifted still points
  canvas.addEventListener("dblclick", (event) => { const at = place(event); if (at) zoom(2, at); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, place(event) ?? undefined);
  }, { passive: false });

  const ACTIONS = { in: () => zoom(2), out: () => zoom(0.5), all: () => show(0, 0, 1) };
  for (const button of buttons) button.addEventListener("click", ACTIONS[button.dataset.zoom]);
  const STEPS_OF = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoom(2);
    else if (event.key === "-") zoom(0.5);
    else if (event.key === "0") show(0, 0, 1);
    else if (event.key in STEPS_OF) move(...STEPS_OF[event.key]);
    else if (event.key === "Enter") move(0, 0);
    else return;
    event.preventDefault();
  });
  return { view, show, zoom, reveal };
}

const MAX_SIDE = 768; // a square that is still on the screen as a whole

// Fit a square canvas to its column at the screen's resolution; return a context in CSS pixels.
function fitCanvas(canvas) {
  const column = canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentElement).paddingLeft);
  const width = Math.min(column, MAX_SIDE), ratio = devicePixelRatio || 1;
  canvas.style.width = canvas.style.height = `${width}px`;
  canvas.width = canvas.height = Math.round(width * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width };
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}
