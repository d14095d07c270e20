// Mouse, pen and fingers on a picture: look, pan, zoom, enlarge.

/** Pixels that a pointer may move and still have clicked. */
const CLICK = 5;

function watchPointer(view) {
  const { pic, stage } = view;
  const down = new Map();
  let moved = false;
  let spread = 0;

  const place = (e) => {
    const box = pic.getBoundingClientRect();
    const { left, top } = view.area;
    return [e.clientX - box.left - left, e.clientY - box.top - top];
  };
  const look = (e) => {
    if (!view.camera) return;
    const { width, height } = view.area;
    const at = view.camera.at(...place(e), width, height).map(Math.floor);
    const within = at.every((v, k) => v >= 0 && v < view.full[k]);
    stage.point(view.camera, within ? at : null);
  };
  const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);

  pic.addEventListener("pointerdown", (e) => {
    if (e.button || !view.camera) return;
    down.set(e.pointerId, place(e));
    if (down.size === 1) moved = false;
    if (down.size === 2) spread = apart([...down.values()]);
    if (e.isTrusted) pic.setPointerCapture(e.pointerId);
    look(e);
  });
  pic.addEventListener("pointermove", (e) => {
    look(e);
    const before = down.get(e.pointerId);
    if (!before || !view.camera) return;
    const now = place(e);
    const { width, height } = view.area;
    if (!moved && down.size === 1 && Math.hypot(now[0] - before[0], now[1] - before[1]) < CLICK) return;
    moved = true;
    down.set(e.pointerId, now);
    view.camera.pan((now[0] - before[0]) / down.size, (now[1] - before[1]) / down.size, width, height);
    if (down.size === 2) {
      const [a, b] = [...down.values()];
      const wide = apart([a, b]);
      if (spread > 0) view.camera.zoomAt(wide / spread, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2, width, height);
      spread = wide;
    }
    stage.refresh();
  });
  const up = (e) => {
    if (!down.delete(e.pointerId)) return;
    const clicked = !moved && e.type === "pointerup" && down.size === 0;
    if (clicked && !stage.large && stage.views.size > 1) stage.enlarge(view);
  };
  pic.addEventListener("pointerup", up);
  pic.addEventListener("pointercancel", up);
  pic.addEventListener("pointerleave", () => {
    if (view.camera && !down.size) stage.point(view.camera, null);
  });
  pic.addEventListener("dblclick", () => { view.camera?.fit(); stage.refresh(); });
  pic.addEventListener("wheel", (e) => {
    // Where the page itself scrolls, the wheel alone belongs to it.
    if (!view.camera || (stage.scrolls() && !stage.large && !e.ctrlKey)) return;
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 18 : 1;
    const { width, height } = view.area;
    view.camera.zoomAt(Math.exp(-e.deltaY * lines * (e.ctrlKey ? 0.01 : 0.002)), ...place(e), width, height);
    stage.refresh();
    look(e);
  }, { passive: false });
}
