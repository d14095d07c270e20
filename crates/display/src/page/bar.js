// The strip below a picture: how often values are, the range over it, and what its colours mean.

const BINS = 96;
const BAR = { height: 50, histogram: 24, strip: 8, grip: 9 };

class Bar {
  /** `view` has a look, a range, values; `changed()` is told after the range was moved by hand. */
  constructor(view, changed) {
    this.view = view;
    this.changed = changed;
    this.canvas = element("canvas", {
      class: "bar", role: "img", title: "drag the ends of the range, or the range; double-click: automatic",
    });
    this.domain = null;
    this.drag = null;
    this.counts = new Uint32Array(BINS);
    this.canvas.addEventListener("pointerdown", (e) => this.down(e));
    this.canvas.addEventListener("pointermove", (e) => this.move(e));
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, () => { this.drag = null; });
    }
    this.canvas.addEventListener("dblclick", () => { view.look.mode = "auto"; this.changed(); });
  }

  /** The range and a little beside it, as far as there are values: outliers must not shrink it to nothing. */
  findDomain() {
    const { range, found } = this.view;
    const [to, from] = [forward(range.log), backward(range.log)];
    const [a, b] = [to(range.lo), to(range.hi)];
    const more = 0.15 * (b - a);
    let [lo, hi] = [a, b];
    if (found && to(found[0]) < a) lo = Math.max(to(found[0]), a - more);
    if (found && to(found[1]) > b) hi = Math.min(to(found[1]), b + more);
    if (this.view.look.mode === "hand") [lo, hi] = [Math.min(lo, a - more / 2), Math.max(hi, b + more / 2)];
    return { lo, hi, to, from, log: range.log };
  }

  count() {
    const { lo, hi, to } = this.domain;
    this.counts.fill(0);
    for (const v of this.view.sample()) {
      const k = Math.floor((to(v) - lo) / (hi - lo) * BINS);
      if (k >= 0 && k < BINS) this.counts[k]++;
      else if (v === this.view.found[1] && k === BINS) this.counts[BINS - 1]++;
    }
  }

  x(v) {
    const { lo, hi, to } = this.domain;
    return this.left + (to(v) - lo) / (hi - lo) * this.width;
  }

  draw() {
    const { view, canvas } = this;
    if (!view.range || !canvas.clientWidth) return;
    const g = sized(canvas);
    this.left = 8;
    this.width = canvas.clientWidth - 16;
    if (!this.drag) this.domain = this.findDomain();
    this.count();
    const { log, from } = this.domain;
    const { lo, hi } = view.range;
    const most = Math.max(1, ...this.counts);
    const wide = this.width / BINS;
    const name = view.look.table;
    for (let k = 0; k < BINS; k++) {
      if (!this.counts[k]) continue;
      // Square roots, or rare values would not be seen beside frequent ones.
      const high = Math.max(1, Math.sqrt(this.counts[k] / most) * (BAR.histogram - 2));
      const middle = from(this.domain.lo + (k + 0.5) / BINS * (this.domain.hi - this.domain.lo));
      g.fillStyle = middle >= lo && middle <= hi ? ink.dim : ink.line;
      g.fillRect(this.left + k * wide, BAR.histogram - high, wide - 0.5, high);
    }
    const [a, b] = [this.x(lo), this.x(hi)];
    g.imageSmoothingEnabled = false;
    g.drawImage(strip(name), a, BAR.histogram + 1, b - a, BAR.strip);
    const right = this.left + this.width;
    g.fillStyle = css(name, 0);
    if (a > this.left) g.fillRect(this.left, BAR.histogram + 4, a - this.left, BAR.strip - 6);
    g.fillStyle = css(name, 255);
    if (b < right) g.fillRect(b, BAR.histogram + 4, right - b, BAR.strip - 6);
    g.fillStyle = ink.text;
    for (const x of [a, b]) g.fillRect(Math.round(x) - 1, 2, 1.5, BAR.histogram + BAR.strip - 1);
    this.drawTicks(g, log, a, b);
    canvas.setAttribute("aria-label", `colours of ${view.name}: ${name}, ${short(lo)} to ${short(hi)}`);
  }

  drawTicks(g, log, a, b) {
    const { lo, hi } = this.view.range;
    const y = BAR.histogram + BAR.strip + 1;
    g.font = `11px ${FONT}`;
    g.textBaseline = "top";
    g.textAlign = "left";
    // Ticks that would touch the one before are left out.
    let free = 0;
    for (const v of ticks(lo, hi, Math.max(2, (b - a) / 70), log)) {
      const x = this.x(v);
      const text = short(v);
      const wide = g.measureText(text).width;
      const at = Math.max(1, Math.min(x - wide / 2, this.width + 15 - wide));
      g.fillStyle = ink.dim;
      g.fillRect(Math.round(x) - 0.5, y, 1, 3);
      if (at < free) continue;
      g.fillText(text, at, y + 4);
      free = at + wide + 8;
    }
  }

  down(e) {
    if (!this.domain || e.button) return;
    const { lo, hi } = this.view.range;
    const [a, b] = [Math.abs(e.offsetX - this.x(lo)), Math.abs(e.offsetX - this.x(hi))];
    const grip = e.pointerType === "mouse" ? BAR.grip : 2 * BAR.grip;
    const part = Math.min(a, b) > grip ? "both" : a < b ? "lo" : "hi";
    this.drag = { part, from: e.offsetX, lo, hi };
    this.canvas.setPointerCapture(e.pointerId);
    e.preventDefault();
  }

  move(e) {
    if (!this.drag) return;
    const { to, from } = this.domain;
    const { look } = this.view;
    const by = (e.offsetX - this.drag.from) / this.width * (this.domain.hi - this.domain.lo);
    const moved = (v) => from(to(v) + by);
    let { lo, hi } = this.drag;
    if (look.scale === "symmetric") {
      if (this.drag.part === "both") return;
      const most = Math.abs(moved(this.drag.part === "lo" ? lo : hi));
      [lo, hi] = [-most, most];
    } else {
      if (this.drag.part !== "hi") lo = moved(lo);
      if (this.drag.part !== "lo") hi = moved(hi);
    }
    if (!(lo < hi)) return;
    look.mode = "hand";
    look.hand = [lo, hi];
    this.changed();
  }
}
