// Small values beside the arrays: as text, and numbers as running curves.

const RUN = 500;
/** Names that are kept; a program with more shows the first ones. */
const MOST = 64;

class Scalars {
  constructor(node) {
    this.node = node;
    this.clear();
  }

  clear() {
    this.rows = new Map();
    this.node.replaceChildren();
    this.node.hidden = true;
  }

  /** Takes the values of a frame that came; those of a step that was there already are not counted twice. */
  note(frame) {
    for (const [name, value] of Object.entries(frame.values)) {
      const row = this.rows.get(name) ?? this.add(name);
      if (!row || typeof value !== "number") continue;
      if (row.steps.length && frame.step <= row.steps.at(-1)) {
        if (frame.step === row.steps.at(-1)) continue;
        row.steps.length = row.numbers.length = 0;
      }
      row.steps.push(frame.step);
      row.numbers.push(value);
      if (row.steps.length > RUN) { row.steps.shift(); row.numbers.shift(); }
    }
  }

  add(name) {
    if (this.rows.size >= MOST) return null;
    const text = element("output", { "data-value": name });
    const canvas = element("canvas", { class: "run", "aria-hidden": "true", hidden: "" });
    const row = { text, canvas, steps: [], numbers: [] };
    this.rows.set(name, row);
    this.node.append(element("div", { class: "scalar" }, element("span", {}, name), text, canvas));
    this.node.hidden = false;
    return row;
  }

  /** The texts of one frame; the curves follow with `draw`. */
  show(frame) {
    this.step = frame.step;
    for (const [name, row] of this.rows) {
      const value = frame.values[name];
      say(row.text, value === undefined ? "" : typeof value === "number" ? short(value, 7)
        : typeof value === "string" ? value : JSON.stringify(value));
    }
  }

  draw() {
    for (const { canvas, steps, numbers } of this.rows.values()) {
      canvas.hidden = numbers.length < 2;
      if (canvas.hidden) continue;
      const finite = numbers.filter(Number.isFinite);
      let [lo, hi] = [Math.min(...finite), Math.max(...finite)];
      if (!(lo < hi)) [lo, hi] = [lo - 1, lo + 1];
      const g = sized(canvas);
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      const span = steps.at(-1) - steps[0] || 1;
      const px = (k) => 2 + (steps[k] - steps[0]) / span * (width - 5);
      const py = (v) => height - 3 - (v - lo) / (hi - lo) * (height - 6);
      g.strokeStyle = ink.accent;
      g.lineWidth = 1.25;
      g.lineJoin = "round";
      g.beginPath();
      let down = false;
      numbers.forEach((v, k) => {
        if (Number.isFinite(v)) g[down ? "lineTo" : "moveTo"](px(k), py(v));
        down = Number.isFinite(v);
      });
      g.stroke();
      const at = steps.indexOf(this.step);
      if (at < 0 || !Number.isFinite(numbers[at])) continue;
      g.fillStyle = ink.text;
      g.beginPath();
      g.arc(px(at), py(numbers[at]), 2.5, 0, 7);
      g.fill();
    }
  }
}
