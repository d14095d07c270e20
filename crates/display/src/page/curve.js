// Arrays of one dimension, as curves over their index.

const MARGIN = { left: 56, right: 12, top: 10, bottom: 22 };

/** Part of a tile that a curve has, within the axes. */
const curveArea = (width, height) => ({
  left: MARGIN.left,
  top: MARGIN.top,
  width: Math.max(1, width - MARGIN.left - MARGIN.right),
  height: Math.max(1, height - MARGIN.top - MARGIN.bottom),
});

/** Vertical place of a value, 0 at the bottom to 1 at the top. */
function heightOf({ lo, hi, log }) {
  const to = forward(log);
  const [a, b] = [to(lo), to(hi)];
  return (v) => (log && !(v > 0) ? NaN : (to(v) - a) / (b - a));
}

function drawCurve(view) {
  const g = sized(view.canvas);
  const { head, values, range, area, camera } = view;
  const [n] = head.shape;
  const [from, to] = [head.lo?.[0] ?? 0, head.hi?.[0] ?? n];
  const seen = camera.window(area.width, area.height);
  const y = heightOf(range);
  const py = (v) => area.top + area.height * (1 - y(v) * 0.94 - 0.03);
  drawAxes(g, view, seen, py);
  g.save();
  g.beginPath();
  g.rect(area.left, area.top - 2, area.width, area.height + 4);
  g.clip();
  g.strokeStyle = ink.accent;
  g.lineWidth = 1.4;
  g.lineJoin = "round";
  g.beginPath();
  const each = (to - from) / n;
  const first = Math.max(0, Math.floor((seen.lo[1] - from) / each) - 1);
  const last = Math.min(n, Math.ceil((seen.hi[1] - from) / each) + 1);
  const wide = area.width / (seen.hi[1] - seen.lo[1]);
  const px = (i) => area.left + (from + (i + 0.5) * each - seen.lo[1]) * wide;
  if (last - first <= 8 * area.width) lines(g, values, first, last, px, py);
  else strokes(g, values, first, last, px, py);
  g.stroke();
  if (each * wide > 9) {
    g.fillStyle = ink.accent;
    for (let i = first; i < last; i++) {
      if (Number.isFinite(values[i])) g.fillRect(px(i) - 2, py(values[i]) - 2, 4, 4);
    }
  }
  g.restore();
}

/** One line, broken where there is no value. */
function lines(g, values, first, last, px, py) {
  let down = false;
  for (let i = first; i < last; i++) {
    const v = py(values[i]);
    if (!Number.isFinite(v)) { down = false; continue; }
    if (down) g.lineTo(px(i), v);
    else g.moveTo(px(i), v);
    down = true;
  }
}

/** More values than pixels: least and greatest of each column, so that no peak is lost. */
function strokes(g, values, first, last, px, py) {
  let [column, lo, hi, before] = [null, Infinity, -Infinity, NaN];
  const flush = () => {
    if (lo <= hi) { g.moveTo(column + 0.5, py(hi) - 0.5); g.lineTo(column + 0.5, py(lo) + 0.5); }
    [lo, hi] = [Infinity, -Infinity];
  };
  for (let i = first; i < last; i++) {
    const at = Math.floor(px(i));
    const v = values[i];
    if (at !== column) {
      flush();
      column = at;
      // From where the column before ended, or steep parts would have gaps.
      if (Number.isFinite(before)) lo = hi = before;
    }
    if (Number.isFinite(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
    before = v;
  }
  flush();
}

function drawAxes(g, { area, range }, seen, py) {
  g.font = `11px ${FONT}`;
  g.lineWidth = 1;
  const grid = (x0, y0, x1, y1) => {
    g.strokeStyle = ink.line;
    g.beginPath();
    g.moveTo(x0, y0);
    g.lineTo(x1, y1);
    g.stroke();
  };
  g.fillStyle = ink.dim;
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (const v of ticks(range.lo, range.hi, Math.max(2, area.height / 44), range.log)) {
    const y = Math.round(py(v)) + 0.5;
    grid(area.left, y, area.left + area.width, y);
    g.fillText(short(v), area.left - 6, y);
  }
  g.textBaseline = "top";
  g.textAlign = "center";
  const [lo, hi] = [seen.lo[1], seen.hi[1]];
  for (const v of ticks(lo, hi, Math.max(2, area.width / 90))) {
    if (!Number.isInteger(v)) continue;
    const x = Math.round(area.left + (v - lo) / (hi - lo) * area.width) + 0.5;
    grid(x, area.top, x, area.top + area.height);
    g.fillText(String(v), Math.min(x, area.left + area.width - 4), area.top + area.height + 6);
  }
}
