// What a viewer picks of an array that does not fit a screen: axes, slice, projection, how it is reduced.

class Dims {
  /** `changed()` is told after each choice. */
  constructor(view, changed) {
    this.view = view;
    this.changed = changed;
    this.shape = view.info.shape;
    this.axes = null;
    // Index on each axis; of the shown ones it is not used.
    this.at = this.shape.map((n) => n >> 1);
    this.project = false;
    this.reduce = "mean";
    this.chosen = false;
    this.node = element("div", { class: "dims", hidden: "" });
  }

  get deep() { return this.shape.length > 2 && !this.view.colour; }

  /** Axes that are not shown. */
  get rest() { return this.shape.map((_, d) => d).filter((d) => !this.axes.includes(d)); }

  /** The slice as one number: row-major over the axes that are not shown. */
  get slice() {
    return this.project || !this.deep ? null : this.rest.reduce((k, d) => k * this.shape[d] + this.at[d], 0);
  }

  set slice(k) {
    for (const d of this.rest.reverse()) {
      this.at[d] = k % this.shape[d];
      k = Math.floor(k / this.shape[d]);
    }
  }

  /** The server says what it shows until the viewer has chosen. */
  adopt(head) {
    if (this.chosen) return;
    const axes = head.axes ?? [0, 1];
    const same = this.axes && axes.join() === this.axes.join() && this.shown === this.view.reduced;
    this.axes = axes;
    this.project = this.deep && (head.slice ?? null) === null;
    if (this.deep && !this.project) this.slice = head.slice;
    if (head.reduce) this.reduce = head.reduce;
    if (!same) this.build();
    this.say();
  }

  pick(change) {
    change();
    this.chosen = true;
    this.say();
    this.changed();
  }

  build() {
    const { node, shape } = this;
    node.replaceChildren();
    this.sliders = new Map();
    this.shown = this.view.reduced;
    node.hidden = !this.deep && !this.view.reduced;
    if (node.hidden) return;
    const name = this.view.name;
    if (this.deep) {
      const pairs = shape.flatMap((_, a) => shape.map((_, b) => [a, b])).filter(([a, b]) => a < b);
      const select = element("select", {
        "aria-label": `axes of ${name}`,
        change: () => this.pick(() => { this.axes = pairs[select.selectedIndex]; this.build(); }),
      }, ...pairs.map(([a, b]) => element("option", {}, `axes ${a} × ${b}`)));
      select.selectedIndex = pairs.findIndex((pair) => pair.join() === this.axes.join());
      node.append(select);
      for (const d of this.rest) {
        const slider = element("input", {
          type: "range", min: 0, max: shape[d] - 1, step: 1, "aria-label": `slice of axis ${d} of ${name}`,
          input: () => this.pick(() => { this.at[d] = Number(slider.value); this.project = false; }),
        });
        const text = element("output");
        this.sliders.set(d, { slider, text });
        node.append(element("label", { class: "slice" }, slider, text));
      }
      this.box = element("input", {
        type: "checkbox", change: () => this.pick(() => { this.project = this.box.checked; }),
      });
      const title = "the greatest value along the axes that are not shown";
      node.append(element("label", { title }, this.box, " maximum"));
    }
    if (this.view.reduced) {
      this.method = element("select", {
        "aria-label": `what a pixel of ${name} is`,
        title: "the array has more elements than the screen has pixels",
        change: () => this.pick(() => { this.reduce = this.method.value; }),
      }, ...["mean", "max", "sample"].map((how) => element("option", { value: how }, `pixel: ${how}`)));
      node.append(this.method);
    }
    this.say();
  }

  say() {
    if (this.method) this.method.value = this.reduce;
    if (!this.deep || !this.box) return;
    this.box.checked = this.project;
    for (const [d, { slider, text }] of this.sliders) {
      slider.value = this.at[d];
      slider.disabled = this.project;
      say(text, this.project ? `axis ${d}: all` : `axis ${d}: ${this.at[d]} of ${this.shape[d]}`);
    }
  }
}
