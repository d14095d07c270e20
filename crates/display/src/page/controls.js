// Buttons, menus and keys.

/** Wires the controls. `page` is what they act on: play, pause, step, show, save; `stage` has the looks. */
class Controls {
  constructor(stage, page) {
    this.stage = stage;
    this.page = page;
    for (const name of TABLE_NAMES) byId("table").append(element("option", { value: name }, name));
    const on = (id, what) => byId(id).addEventListener("click", what);
    on("play", () => page.toggle());
    on("back", () => page.step(-1));
    on("next", () => page.step(1));
    on("less", () => stage.zoom(1 / 1.5));
    on("more", () => stage.zoom(1.5));
    on("fit", () => stage.fit());
    on("owners", () => this.owners());
    on("png", () => page.savePicture());
    on("npy", () => page.saveValues());
    on("ask", () => byId("help").showModal());
    byId("past").addEventListener("input", (e) => page.showPast(Number(e.target.value)));
    byId("table").addEventListener("change", (e) => this.look((look) => chooseTable(look, e.target.value)));
    byId("scale").addEventListener("change", (e) => this.look((look) => { look.scale = e.target.value; }));
    byId("mode").addEventListener("change", (e) => this.mode(e.target.value));
    byId("percent").addEventListener("input", (e) => {
      const percent = Number(e.target.value);
      if (percent >= 0 && percent < 50) this.look((look) => { look.percent = percent; });
    });
    for (const id of ["lo", "hi"]) byId(id).addEventListener("change", () => this.hand());
    addEventListener("keydown", (e) => this.key(e));
    // A button that was clicked would take the space bar that is meant for play.
    addEventListener("click", (e) => { if (e.detail > 0) e.target.closest?.("button")?.blur(); });
  }

  look(change) {
    const views = this.stage.targets();
    for (const view of views) change(view.look);
    this.stage.restyle(views);
  }

  mode(mode) {
    for (const view of this.stage.targets()) {
      // By hand begins with the range that is there.
      if (mode === "hand" && view.range) view.look.hand = [view.range.lo, view.range.hi];
      view.look.mode = mode;
    }
    this.stage.restyle(this.stage.targets());
  }

  hand() {
    const read = (id) => Number(byId(id).value.trim().replace("−", "-") || NaN);
    const [lo, hi] = [read("lo"), read("hi")];
    const right = Number.isFinite(lo) && Number.isFinite(hi) && lo < hi;
    for (const id of ["lo", "hi"]) byId(id).setAttribute("aria-invalid", String(!right));
    if (right) this.look((look) => { look.mode = "hand"; look.hand = [lo, hi]; });
  }

  nextTable(by) {
    const first = this.stage.targets()[0]?.look.table ?? TABLE_NAMES[0];
    const next = TABLE_NAMES.at((TABLE_NAMES.indexOf(first) + by) % TABLE_NAMES.length);
    this.look((look) => chooseTable(look, next));
  }

  owners() {
    this.stage.owners(!this.stage.showOwners);
    this.say();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || byId("help").open || byId("controls").hidden) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    if (e.target.tagName === "BUTTON" && (e.key === " " || e.key === "Enter")) return;
    const act = {
      " ": () => this.page.toggle(),
      ArrowLeft: () => this.page.step(-1),
      ArrowRight: () => this.page.step(1),
      "+": () => this.stage.zoom(1.5),
      "=": () => this.stage.zoom(1.5),
      "-": () => this.stage.zoom(1 / 1.5),
      0: () => this.stage.fit(),
      l: () => this.look((look) => { look.scale = look.scale === "log" ? "linear" : "log"; }),
      r: () => this.mode("auto"),
      o: () => this.owners(),
      c: () => this.nextTable(1),
      C: () => this.nextTable(-1),
      s: () => this.page.savePicture(),
      d: () => this.page.saveValues(),
      "?": () => byId("help").showModal(),
      Escape: () => { if (this.stage.large) this.stage.enlarge(null); },
    }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  }

  /** Shows how things are: after looks, the enlarged view, or what is played changed. */
  say() {
    const views = this.stage.targets();
    const view = views[0];
    const { paused, shown, history } = this.page;
    document.body.classList.toggle("paused", paused);
    byId("play").setAttribute("aria-label", paused ? "play" : "pause");
    const at = history.frames.indexOf(shown);
    const past = byId("past");
    past.max = Math.max(0, history.frames.length - 1);
    past.value = at < 0 ? past.max : at;
    byId("back").disabled = at === 0 || history.frames.length < 2;
    byId("next").disabled = !paused || at === history.frames.length - 1;
    byId("owners").setAttribute("aria-pressed", String(this.stage.showOwners));
    byId("owners").disabled = !this.stage.list().some(({ info }) => info.owners?.length);
    if (!view) return;
    say(byId("target"), views.length > 1 ? "all views" : view.name);
    const { look, range } = view;
    byId("table").value = look.table ?? "viridis";
    byId("scale").value = look.scale;
    byId("mode").value = look.mode;
    byId("percents").hidden = look.mode !== "percentile";
    if (document.activeElement !== byId("percent")) byId("percent").value = look.percent;
    say(byId("upper"), String(100 - look.percent));
    byId("hands").hidden = look.mode !== "hand";
    if (!range) return;
    // What was just written is not in the range before the next drawing.
    const ends = look.mode === "hand" && look.hand ? look.hand : [range.lo, range.hi];
    for (const [k, id] of ["lo", "hi"].entries()) {
      if (document.activeElement !== byId(id)) byId(id).value = Number(ends[k].toPrecision(6));
    }
  }
}

/** Tables with a middle want zero in it; the others have no use for that. */
function chooseTable(look, name) {
  if (diverging(name) && !diverging(look.table) && look.scale === "linear") look.scale = "symmetric";
  if (!diverging(name) && diverging(look.table) && look.scale === "symmetric") look.scale = "linear";
  look.table = name;
}
