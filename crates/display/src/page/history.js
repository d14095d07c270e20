// The last frames, to step back over.

const FRAMES = 30;
const BYTES = 256 << 20;

class History {
  constructor() { this.clear(); }

  clear() {
    this.frames = [];
    this.bytes = 0;
  }

  get newest() { return this.frames.at(-1) ?? null; }

  /** Adds the newest. The same step may come again, with other parts of the array or on a new connection: it
   *  replaces the one before. A step before the newest is of a program that has begun again. */
  add(frame) {
    const last = this.newest;
    if (last && frame.step < last.step) this.clear();
    if (this.newest?.step === frame.step) this.bytes -= this.frames.pop().size;
    this.frames.push(frame);
    this.bytes += frame.size;
    while (this.frames.length > FRAMES || (this.bytes > BYTES && this.frames.length > 1)) {
      this.bytes -= this.frames.shift().size;
    }
  }

  /** The frame `by` places after `frame`; the first or the last where there is none. */
  beside(frame, by) {
    const at = this.frames.indexOf(frame);
    const to = at < 0 ? 0 : at + by;
    return this.frames[Math.max(0, Math.min(this.frames.length - 1, to))] ?? null;
  }
}
