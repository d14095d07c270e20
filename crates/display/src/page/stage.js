// All views of a bundle: they are drawn together, of one step, in one animation frame.

/** Milliseconds between two drawings of bars and running curves: nobody reads them quicker. */
const BARS_EVERY = 140;

class Stage {
  /** `told`: wake() for an animation frame, changed() after looks or the enlarged view changed, drawn(). */
  constructor(node, told) {
    this.node = node;
    this.told = told;
    this.views = new Map();
    this.cameras = new Map();
    this.large = null;
    this.showOwners = false;
    this.frame = null;
    this.dirty = new Set();
    this.bars = 0;
    this.barsTimer = null;
    this.wants = null;
    new ResizeObserver(() => this.arrange()).observe(node);
  }

  /** The views of a program. Looks stay with names, cameras with shapes: a restart is seen as before. */
  enter(infos) {
    const before = this.views;
    const large = this.large?.name;
    this.views = new Map(infos.map((info) => [info.name, new View(info, this)]));
    for (const [name, view] of this.views) if (before.has(name)) view.look = before.get(name).look;
    this.large = this.views.size > 1 ? this.views.get(large) ?? null : null;
    this.frame = null;
    this.node.replaceChildren(...[...this.views.values()].map((view) => view.tile));
    this.arrange();
    this.told.changed();
  }

  list() { return [...this.views.values()]; }
  seen() { return this.list().filter((view) => view.visible); }
  /** Views that controls are for: the enlarged one, or all. */
  targets() { return this.large ? [this.large] : this.list(); }

  cameraFor(full, view) {
    const key = `${view.curve}:${full.join()}:${view.dims.axes.join()}`;
    if (!this.cameras.has(key)) {
      // Shapes that keep changing must not leave a camera each.
      if (this.cameras.size > 64) this.cameras.clear();
      this.cameras.set(key, new Camera(full));
    }
    return this.cameras.get(key);
  }

  /** Draws a frame: called within an animation frame. */
  draw(frame) {
    this.frame = frame;
    for (const head of frame.views) this.views.get(head.name)?.take(head, frame.step);
    // Ranges first: what takes long is over before the first canvas changes.
    const seen = this.seen().filter((view) => view.head);
    for (const view of seen) view.measure();
    for (const view of seen) view.draw();
    this.dirty.clear();
    this.drawBars();
  }

  /** Draws again what was changed by the viewer; the next frame would come too late, or not at all. */
  redraw() {
    const seen = this.seen().filter((view) => view.head);
    if (this.dirty.has("all")) for (const view of seen) this.dirty.add(view);
    for (const view of seen) {
      if (!this.dirty.has(view)) continue;
      view.measure();
      view.draw();
    }
    if (this.dirty.has("place")) {
      for (const view of seen) {
        if (view.curve || view.stride() !== view.skip) view.draw();
        else { view.place(); view.point(); }
      }
    }
    this.dirty.clear();
    this.drawBars(true);
  }

  /** Bars and running curves at their own pace; `now` where the viewer waits for them. */
  drawBars(now = false) {
    const time = performance.now();
    if (!now && time - this.bars < BARS_EVERY) {
      this.barsTimer ??= setTimeout(() => { this.barsTimer = null; this.drawBars(true); }, BARS_EVERY);
      return;
    }
    this.bars = time;
    for (const view of this.seen()) if (view.head && !view.curve) view.bar.draw();
    this.told.drawn();
  }

  mark(what) {
    this.dirty.add(what);
    this.told.wake();
  }

  refresh() { this.mark("place"); this.wants?.soon(); }

  /** After looks of some views changed. */
  restyle(views) {
    for (const view of views) this.mark(view);
    this.told.changed();
  }

  point(camera, at) {
    camera.pointer = at;
    for (const view of this.seen()) if (view.camera === camera) view.point();
  }

  zoom(factor) {
    for (const camera of new Set(this.seen().map((view) => view.camera))) {
      const view = this.seen().find((one) => one.camera === camera);
      if (!camera) continue;
      const { width, height } = view.area;
      camera.zoomAt(factor, width / 2, height / 2, width, height);
    }
    this.refresh();
  }

  fit() {
    for (const camera of this.cameras.values()) camera.fit();
    this.refresh();
  }

  owners(shown) {
    this.showOwners = shown;
    this.refresh();
  }

  enlarge(view) {
    this.large = view;
    this.arrange();
    this.told.changed();
    this.mark("all");
    this.wants?.soon();
  }

  /** Whether tiles go on below what is seen. */
  scrolls() { return document.documentElement.scrollHeight > innerHeight + 4; }

  /** As many columns as make the pictures largest. On narrow screens tiles are as high as their arrays. */
  arrange() {
    const views = this.list();
    for (const view of views) {
      view.tile.hidden = this.large !== null && this.large !== view;
      view.larger.hidden = views.length < 2;
      say(view.larger, this.large === view ? "⤡" : "⤢");
      view.larger.setAttribute("aria-label", this.large === view ? "show all views" : `enlarge ${view.name}`);
    }
    const n = this.large ? 1 : views.length;
    const narrow = innerWidth < 700;
    this.node.classList.toggle("many", n > 1);
    let [best, most] = [1, 0];
    if (!narrow) {
      const { clientWidth, clientHeight } = this.node;
      for (let columns = 1; columns <= n; columns++) {
        const [w, h] = [clientWidth / columns, clientHeight / Math.ceil(n / columns) - 84];
        const area = views.reduce((sum, { tile }) => {
          const aspect = Number(tile.style.getPropertyValue("--aspect")) || 1.5;
          return sum + Math.min(w, Math.max(h, 40) * aspect) ** 2 / aspect;
        }, 0);
        if (area > most) [best, most] = [columns, area];
      }
    } else if (n > 2) best = 2;
    this.node.style.setProperty("--columns", best);
  }
}
