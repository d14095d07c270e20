// One view of a bundle: a tile with its picture or curve, what lies over it, and its bar.

class View {
  /** `info` is the view in `hello`; `stage` is told what the viewer does. */
  constructor(info, stage) {
    this.info = info;
    this.name = info.name;
    this.stage = stage;
    this.look = newLook();
    this.curve = info.shape.length === 1;
    this.camera = null;
    this.keep = {};
    this.head = this.values = this.found = this.range = null;
    this.reduced = false;
    this.asked = null;
    this.build();
  }

  build() {
    const { name, stage } = this;
    this.canvas = element("canvas", {
      class: "data", "data-view": name, role: "img", "aria-label": `values of ${name}`,
    });
    this.over = element("canvas", { class: "over", "aria-hidden": "true" });
    this.paper = element("div", { class: "paper" });
    this.spot = element("div", { class: "spot", hidden: "" });
    this.pic = element("div", { class: this.curve ? "pic curve" : "pic" });
    this.pic.append(this.paper, this.canvas, this.over, this.spot);
    this.kind = element("span", { class: "kind" });
    this.readout = element("span", { class: "readout" });
    this.larger = element("button", {
      type: "button", class: "larger", title: "enlarge (click the picture), Esc: all",
      click: () => stage.enlarge(stage.large === this ? null : this),
    }, "⤢");
    this.bar = new Bar(this, () => stage.restyle([this]));
    this.dims = new Dims(this, () => stage.wants.soon());
    this.tile = element("figure", { class: "tile", "data-tile": name },
      element("figcaption", {}, element("b", {}, name), this.kind, this.readout, this.larger),
      this.pic, this.dims.node, this.bar.canvas);
    if (this.curve) this.bar.canvas.hidden = true;
    new ResizeObserver(() => this.resized()).observe(this.pic);
    watchPointer(this);
  }

  get visible() { return !this.tile.hidden; }

  /** Where the values are within the picture's element. */
  get area() {
    const [width, height] = [this.pic.clientWidth, this.pic.clientHeight];
    return this.curve ? curveArea(width, height) : { left: 0, top: 0, width, height };
  }

  resized() {
    if (!this.head) return;
    if (!this.camera.fitted) this.camera.keep(this.area.width, this.area.height);
    this.stage.refresh();
  }

  /** Takes this view's part of a frame; `draw` shows it. */
  take(head, step) {
    // Rows, columns and channels: what is shown are rows and columns.
    this.colour = head.shape.length === 3;
    if (this.colour) {
      const plane = ["full", "lo", "hi", "axes"].map((name) => [name, head[name].slice(0, 2)]);
      head = { ...head, ...Object.fromEntries(plane) };
      this.bar.canvas.hidden = true;
    }
    this.head = head;
    this.step = step;
    this.sorted = null;
    this.values = numbers(head, this.keep);
    const full = this.curve ? [1, head.full?.[0] ?? head.shape[0]] : head.full ?? head.shape;
    this.full = full;
    this.lo = this.curve ? [0, head.lo?.[0] ?? 0] : head.lo ?? [0, 0];
    this.hi = this.curve ? [1, head.hi?.[0] ?? full[1]] : head.hi ?? full;
    this.reduced ||= Boolean(head.reduce);
    this.dims.adopt(this.curve ? { ...head, axes: [0] } : head);
    this.camera = this.stage.cameraFor(full, this);
    say(this.kind, `${head.dtype} ${this.info.shape.join(" × ")}`);
    this.tile.style.setProperty("--aspect", this.curve ? 2 : Math.max(0.6, Math.min(4, full[1] / full[0])));
  }

  sample() { return (this.sorted ??= sample(this.values)); }

  /** The range of what is shown, after its values or its look changed. */
  measure() {
    if (this.colour) return;
    this.found = extremes(this.values);
    if (this.look.table === null && this.found) {
      const both = signed(this.found) && !this.curve;
      this.look.table = both ? "RdBu" : "viridis";
      if (both) this.look.scale = "symmetric";
    }
    this.range = rangeOf(this.look, this.values, this.head.dtype, this.found);
  }

  /** Draws the newest values: pixels, and the step that they are of. */
  draw() {
    if (this.curve) {
      this.place();
      drawCurve(this);
    } else {
      this.paint();
      this.place();
    }
    this.canvas.dataset.step = this.step;
    this.point();
  }

  /** Every how many values one is coloured: where a tile has fewer pixels, the others would not be seen. */
  stride() {
    const { width, height } = this.area;
    const scale = this.camera.scale(width, height);
    const dense = window.devicePixelRatio || 1;
    const per = [0, 1].map((k) => this.head.shape[k] / ((this.hi[k] - this.lo[k]) * scale[k] * dense));
    return Math.max(1, Math.floor(Math.min(...per, 64) + 1e-6));
  }

  paint() {
    const [rows, columns] = this.head.shape;
    this.skip = this.stride();
    const [width, height] = [Math.ceil(columns / this.skip), Math.ceil(rows / this.skip)];
    if (!width || !height) return;
    if (this.image?.width !== width || this.image?.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.g = this.canvas.getContext("2d");
    }
    if (this.colour) {
      paintChannels(this.image.data, this.values, this.head, this.skip);
      return this.g.putImageData(this.image, 0, 0);
    }
    const colours = table(this.look.table ?? "viridis");
    paint(this.pixels, this.values, columns, rows, this.skip, this.range, colours);
    this.g.putImageData(this.image, 0, 0);
  }

  /** Screen rectangle [x, y, width, height] of rows and columns lo..hi of the array. */
  rect(lo, hi) {
    const { left, top, width, height } = this.area;
    const [down, across] = this.camera.scale(width, height);
    const [y, x] = this.camera.origin(width, height);
    const size = [(hi[1] - lo[1]) * across, (hi[0] - lo[0]) * down];
    return [left + x + lo[1] * across, top + y + lo[0] * down, ...size];
  }

  /** Puts the picture where the camera wants it: the browser scales, no value is coloured again. */
  place() {
    if (!this.head) return;
    if (!this.curve) {
      const [x, y, w, h] = this.rect(this.lo, this.hi);
      const each = [w / this.head.shape[1] * this.skip, h / this.head.shape[0] * this.skip];
      this.canvas.style.transform = `translate(${x}px, ${y}px) scale(${each[0]}, ${each[1]})`;
      this.canvas.style.imageRendering = each[0] * (window.devicePixelRatio || 1) >= 1 ? "pixelated" : "auto";
      const { width, height } = this.area;
      const [x0, y0] = [Math.max(0, x), Math.max(0, y)];
      Object.assign(this.paper.style, {
        left: `${x0}px`, top: `${y0}px`,
        width: `${Math.max(0, Math.min(width, x + w) - x0)}px`,
        height: `${Math.max(0, Math.min(height, y + h) - y0)}px`,
      });
    }
    this.drawOver();
  }

  /** Owners: they change with the camera and the slice, not with values. */
  drawOver() {
    const shown = this.stage.showOwners && this.info.owners?.length > 0;
    const [width, height] = [this.pic.clientWidth, this.pic.clientHeight];
    const { camera, head, full } = this;
    const key = shown ? [camera.zoom, camera.middle, width, height, head.axes, head.slice, full].join() : "";
    if (key === this.drawn) return;
    this.drawn = key;
    this.over.hidden = !shown;
    if (!shown) return;
    const axes = this.curve ? [0] : head.axes ?? [0, 1];
    const rect = (lo, hi) => this.rect(lo, hi);
    drawOwners(sized(this.over), this.info.owners, axes, this.placeOf(0, 0), rect, width, height);
  }

  /** The index in the whole array of row, column of what is shown; null on axes that were projected. */
  placeOf(row, column) {
    if (this.curve) return [column];
    const axes = this.head.axes ?? [0, 1];
    const place = this.info.shape.map(() => null);
    let k = this.head.slice ?? null;
    if (k !== null) {
      for (let d = place.length - 1; d >= 0; d--) {
        if (axes.includes(d)) continue;
        place[d] = k % this.info.shape[d];
        k = Math.floor(k / this.info.shape[d]);
      }
    }
    place[axes[0]] = row;
    place[axes[1]] = column;
    return place;
  }

  /** Index, value and unit under the pointer (or where it is in a view of the same camera). */
  under() {
    const at = this.camera?.pointer;
    if (!at || !this.head) return null;
    const [row, column] = at;
    if (row < this.lo[0] || row >= this.hi[0] || column < this.lo[1] || column >= this.hi[1]) return null;
    const shape = this.curve ? [1, this.head.shape[0]] : this.head.shape;
    const each = [0, 1].map((k) => (this.hi[k] - this.lo[k]) / shape[k]);
    const [r, c] = at.map((v, k) => Math.min(shape[k] - 1, Math.floor((v - this.lo[k]) / each[k])));
    const index = this.placeOf(row, column);
    const many = each.map((n) => Math.ceil(n)).join("×");
    return {
      index,
      value: this.text(r * shape[1] + c),
      units: ownersOf(this.info.owners, index),
      of: each.some((n) => n > 1) ? `${this.head.reduce ?? "sample"} of ${many}` : "",
      cell: [0, 1].map((k) => this.lo[k] + [r, c][k] * each[k]),
      each,
    };
  }

  /** The value of a pixel, or those of its channels. */
  text(pixel) {
    const channels = this.colour ? this.head.shape[2] : 1;
    const of = (_, k) => exact(this.head, this.values, pixel * channels + k);
    return Array.from({ length: channels }, of).join(", ");
  }

  point() {
    const found = this.under();
    this.spot.hidden = !found;
    if (!found) return say(this.readout, "");
    const { index, value, units, of } = found;
    const owner = units.slice(0, 6).join(", ") + (units.length > 6 ? "…" : "");
    const parts = [
      `[${index.map((v) => v ?? "*").join(", ")}]`, value.replace("-", "−"),
      of && `(${of})`, owner && `unit ${owner}`,
    ];
    say(this.readout, parts.filter(Boolean).join("  "));
    const [x, y, w, h] = this.rect(found.cell, found.cell.map((v, k) => v + found.each[k]));
    const [width, height] = [Math.max(w, 5), Math.max(h, 5)];
    Object.assign(this.spot.style, {
      left: `${x + (w - width) / 2}px`, top: `${y + (h - height) / 2}px`,
      width: `${width}px`, height: `${height}px`,
    });
  }

  /** What part is on the screen and with how many pixels; null where the whole array comes anyway. */
  want() {
    if (!this.head || !(this.reduced || this.dims.deep) || !this.visible) return null;
    const { width, height } = this.area;
    const { axes } = this.dims;
    const side = (k) => (this.curve ? axes[0] : axes[k]);
    // Axes that were just chosen have no camera yet: all of them is seen.
    const full = this.curve ? this.full : [0, 1].map((k) => this.info.shape[side(k)]);
    const camera = full.join() === this.full.join() ? this.camera : new Camera(full, this.curve);
    const seen = camera.window(width, height);
    const scale = camera.scale(width, height);
    const dense = window.devicePixelRatio || 1;
    const [lo, hi, pixels] = [[], [], []];
    for (const k of this.curve ? [1] : [0, 1]) {
      // A margin, so that a small move does not show an empty edge.
      const margin = camera.fitted ? 0 : (seen.hi[k] - seen.lo[k]) / 8;
      lo.push(Math.max(0, Math.floor(seen.lo[k] - margin)));
      hi.push(Math.min(full[k], Math.ceil(seen.hi[k] + margin)));
      const size = hi.at(-1) - lo.at(-1);
      pixels.push(Math.max(1, Math.min(4096, size, Math.ceil(size * scale[k] * dense / 32) * 32)));
    }
    return {
      type: "want", view: this.name, axes, lo, hi, pixels,
      slice: this.dims.slice, reduce: this.dims.reduce,
      project: this.dims.deep && this.dims.project ? "max" : null,
    };
  }
}
