// Which unit of the program has which part: boxes over the picture.

/** Hues that differ for any number of units: steps of the golden angle. */
const hue = (unit) => (unit * 137.508 + 205) % 360;

/** Whether a box contains a place; null in a place stands for all of that axis (a projection). */
const contains = ([lo, hi], place) => place.every((p, d) => p === null || (p >= lo[d] && p < hi[d]));

/** Units that have a place of the whole array, in order. */
function ownersOf(owners, place) {
  if (!owners) return [];
  return owners.filter(({ boxes }) => boxes.some((box) => contains(box, place))).map(({ unit }) => unit);
}

/** Draws the boxes that the shown plane cuts. `axes` are the shown ones, `rect` has places on the screen. */
function drawOwners(g, owners, axes, place, rect, width, height) {
  const cut = place.map((p, d) => (axes.includes(d) ? null : p));
  g.font = `600 11px ${FONT}`;
  g.textAlign = "center";
  g.textBaseline = "middle";
  // All tints before all labels: no label lies below the tint of a neighbour.
  const labels = [];
  for (const { unit, boxes } of owners) {
    const tint = hue(unit);
    g.fillStyle = `hsl(${tint} 80% 55% / .16)`;
    g.strokeStyle = `hsl(${tint} 75% 62% / .95)`;
    for (const box of boxes) {
      if (!contains(box, cut)) continue;
      const side = (k) => (axes.length === 1 ? (k === 0 ? null : axes[0]) : axes[k]);
      const of = (ends) => [0, 1].map((k) => (side(k) === null ? 0 : ends[side(k)]));
      const [x, y, w, h] = rect(of(box[0]), axes.length === 1 ? [1, box[1][axes[0]]] : of(box[1]));
      if (x > width || y > height || x + w < 0 || y + h < 0) continue;
      g.fillRect(x, y, w, h);
      if (w > 4 && h > 4) g.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      // In the middle of what is seen of the box.
      const [x0, x1] = [Math.max(0, x), Math.min(width, x + w)];
      const [y0, y1] = [Math.max(0, y), Math.min(height, y + h)];
      if (x1 - x0 > 16 && y1 - y0 > 13) labels.push([String(unit), (x0 + x1) / 2, (y0 + y1) / 2, tint]);
    }
  }
  for (const [text, x, y, tint] of labels) {
    const wide = Math.max(16, g.measureText(text).width + 8);
    g.fillStyle = `hsl(${tint} 45% 22% / .88)`;
    g.beginPath();
    g.roundRect(x - wide / 2, y - 8, wide, 16, 3);
    g.fill();
    g.fillStyle = "#fff";
    g.fillText(text, x, y + 0.5);
  }
}
