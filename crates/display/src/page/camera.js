// Which part of an array is seen. Views of one shape share a camera: they are compared place by place.

/** Screen pixels that an element has at most. */
const CLOSEST = 64;
/** Where one side is so much longer, elements are drawn as long as the tile allows rather than as squares. */
const SLENDER = 16;

class Camera {
  constructor(full) {
    this.full = full;
    this.fit();
  }

  /** Everything is seen. */
  fit() {
    this.zoom = 1;
    // The middle of what is seen, as a part of the whole: rows, columns.
    this.middle = [0.5, 0.5];
  }

  get fitted() { return this.zoom === 1; }

  /** Screen pixels of one element of the array, [down, across], in a tile of this size. */
  scale(width, height) {
    const [rows, columns] = this.full;
    const [down, across] = [height / rows, width / columns];
    const slender = Math.max(rows, columns) > SLENDER * Math.min(rows, columns);
    if (slender) return [down * this.zoom, across * this.zoom];
    const both = Math.min(down, across) * this.zoom;
    return [both, both];
  }

  /** Where element (0, 0) begins on the screen, [y, x]. */
  origin(width, height) {
    const [down, across] = this.scale(width, height);
    const [row, column] = this.middle.map((part, k) => part * this.full[k]);
    return [height / 2 - row * down, width / 2 - column * across];
  }

  /** Place in the array, [row, column] with fractions, of a place on the screen. */
  at(x, y, width, height) {
    const [down, across] = this.scale(width, height);
    const [top, left] = this.origin(width, height);
    return [(y - top) / down, (x - left) / across];
  }

  /** What is seen: rows and columns from..to, within the array. */
  window(width, height) {
    const [r0, c0] = this.at(0, 0, width, height);
    const [r1, c1] = this.at(width, height, width, height);
    const within = (v, n) => Math.max(0, Math.min(n, v));
    const [rows, columns] = this.full;
    return { lo: [within(r0, rows), within(c0, columns)], hi: [within(r1, rows), within(c1, columns)] };
  }

  /** Zooms so that what lies under (x, y) stays there. */
  zoomAt(factor, x, y, width, height) {
    const [row, column] = this.at(x, y, width, height);
    const most = Math.max(1, this.zoom * CLOSEST / Math.max(...this.scale(width, height)));
    this.zoom = Math.max(1, Math.min(most, this.zoom * factor));
    const [down, across] = this.scale(width, height);
    const [dy, dx] = [(height / 2 - y) / down, (width / 2 - x) / across];
    this.middle = [(row + dy) / this.full[0], (column + dx) / this.full[1]];
    this.keep(width, height);
  }

  pan(dx, dy, width, height) {
    const [down, across] = this.scale(width, height);
    this.middle[0] -= dy / down / this.full[0];
    this.middle[1] -= dx / across / this.full[1];
    this.keep(width, height);
  }

  /** An array smaller than the tile stays in the middle, and a larger one covers the tile. */
  keep(width, height) {
    const scale = this.scale(width, height);
    [height, width].forEach((size, k) => {
      const half = size / (this.full[k] * scale[k]) / 2;
      this.middle[k] = half >= 0.5 ? 0.5 : Math.max(half, Math.min(1 - half, this.middle[k]));
    });
  }
}
