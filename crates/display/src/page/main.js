// What comes, what is shown of it, and when.

/** Milliseconds over which frames a second are counted. */
const RATE_OVER = 2000;
const FACTS_EVERY = 250;

class Page {
  constructor(name) {
    this.name = name;
    this.history = new History();
    this.paused = false;
    /** The frame on the screen, and one that waits for the next animation frame. */
    this.shown = null;
    this.next = null;
    this.acks = [];
    this.woken = false;
    this.frames = this.dropped = 0;
    this.lastId = null;
    this.times = [];
    this.state = { state: "running", why: "" };
    this.trouble = "";
    this.greeted = false;
    this.infos = null;
    this.scalars = new Scalars(byId("scalars"));
    this.stage = new Stage(byId("stage"), {
      wake: () => this.wake(),
      changed: () => this.controls?.say(),
      drawn: () => { this.scalars.draw(); this.controls?.say(); },
    });
    this.controls = new Controls(this.stage, this);
    byId("main").hidden = byId("controls").hidden = false;
    say(byId("name"), name);
    document.title = name;
    const url = (path, query = "") => `${location.origin}${pathOf(name)}${path}${token(query)}`;
    this.link = new Link(url, {
      open: () => { this.greeted = false; this.lastId = null; },
      closed: (wait) => {
        this.trouble = `connection lost, trying again in ${(wait / 1000).toFixed(1)} s`;
        this.facts();
      },
      message: (buffer) => this.told(buffer),
    });
    this.stage.wants = new Wants(() => this.stage.list(), (want) => this.link.send(want));
    setInterval(() => this.facts(), FACTS_EVERY);
  }

  told(buffer) {
    let message;
    try {
      message = parse(buffer);
    } catch (error) {
      this.trouble = `a frame cannot be read: ${error.message}`;
      return this.facts();
    }
    if (message.type === "frame") return this.came(message);
    if (message.type === "hello") this.hello(message);
    else if (message.type === "state") {
      this.state = message;
      this.follow(message.look);
    }
    this.facts();
  }

  /** Looks as somebody says from outside, once: by the name of a part, and what is without one for all. */
  follow(looks) {
    const text = JSON.stringify(looks ?? {});
    if (text === this.followed) return;
    const before = JSON.parse(this.followed ?? "{}");
    this.followed = text;
    for (const [part, look] of Object.entries(looks ?? {})) {
      if (JSON.stringify(look) === JSON.stringify(before[part])) continue;
      const views = this.stage.list().filter(({ name }) => !part || name === part || name.startsWith(`${part}/`));
      for (const view of views) Object.assign(view.look, look);
      this.stage.restyle(views);
    }
  }

  hello({ views, group }) {
    this.trouble = "";
    this.state = { state: "running", why: "" };
    byId("name").title = group ? `of ${typeof group === "string" ? group : JSON.stringify(group)}` : "";
    const infos = JSON.stringify(views);
    // A second greeting on one connection is another program. On a new connection it may be the one from
    // before: then what was seen stays, unless its steps begin again.
    if (this.greeted || infos !== this.infos) {
      this.history.clear();
      this.scalars.clear();
      this.next = null;
      this.shown = null;
      this.stage.enter(views);
      this.followed = null;
    }
    this.infos = infos;
    this.greeted = true;
    this.lastId = null;
    this.stage.wants.again();
    if (this.paused) this.link.send({ type: "pause" });
  }

  came(frame) {
    this.trouble = "";
    this.frames++;
    if (this.lastId !== null && frame.id > this.lastId + 1) this.dropped += frame.id - this.lastId - 1;
    this.lastId = frame.id;
    this.history.add(frame);
    this.scalars.note(frame);
    // While paused, or before the frame that is stepped to, it is kept and not drawn. With nothing on the
    // screen yet even a paused viewer wants to see something.
    if (this.paused && this.shown) {
      this.link.send({ type: "ack", id: frame.id });
      return this.controls.say();
    }
    this.acks.push(frame.id);
    this.next = frame;
    this.wake();
  }

  /** Draws in the next animation frame. A page that nobody looks at has none: it acknowledges nothing, and is
   *  sent nothing. */
  wake() {
    if (this.woken) return;
    this.woken = true;
    requestAnimationFrame(() => this.tick());
  }

  tick() {
    this.woken = false;
    const frame = this.next;
    if (frame) {
      this.next = null;
      this.put(frame);
      for (const id of this.acks) this.link.send({ type: "ack", id });
      this.acks = [];
      this.times.push(performance.now());
    } else if (this.stage.dirty.size) {
      this.stage.redraw();
    }
  }

  put(frame) {
    const first = this.shown === null;
    this.shown = frame;
    this.stage.draw(frame);
    this.scalars.show(frame);
    say(byId("step"), String(frame.step));
    if (!first) return;
    // Only now the shapes are known that tiles are arranged for.
    this.stage.arrange();
    this.stage.mark("place");
    this.stage.wants.soon();
    this.controls.say();
  }

  toggle() {
    if (this.paused) this.play();
    else this.pause();
  }

  pause() {
    this.paused = true;
    this.link.send({ type: "pause" });
    this.facts();
    this.controls.say();
  }

  play() {
    this.paused = false;
    // What is sent now is the newest; what was not sent meanwhile was not dropped.
    this.lastId = null;
    this.times = [];
    this.link.send({ type: "play" });
    if (this.history.newest) {
      this.next = this.history.newest;
      this.wake();
    }
    this.facts();
    this.controls.say();
  }

  step(by) { this.look(this.history.beside(this.next ?? this.shown, by)); }
  showPast(at) { this.look(this.history.frames[at]); }

  /** Shows a frame of the past, and stays there. */
  look(frame) {
    if (!frame) return;
    if (!this.paused) this.pause();
    this.next = frame;
    this.wake();
    this.stage.drawBars(false);
  }

  savePicture() {
    if (this.shown) savePicture(this.name, this.shown.step, byId("stage"), this.stage.seen());
  }

  saveValues() {
    if (this.shown) saveValues(this.name, this.stage.targets());
  }

  get rate() {
    const now = performance.now();
    while (this.times.length && this.times[0] < now - RATE_OVER) this.times.shift();
    return this.times.length / (RATE_OVER / 1000);
  }

  badge() {
    if (!this.link?.connected) return ["warn", this.frames || this.greeted ? this.trouble : "connecting"];
    if (this.trouble) return ["warn", this.trouble];
    const { state, why } = this.state;
    if (state === "lost") return ["bad", why ? `program lost: ${why}` : "program lost"];
    if (state === "ended") return ["", this.paused ? "ended, paused" : "ended"];
    if (this.paused) return ["warn", "paused"];
    return this.shown ? ["live", why ? `live, ${why}` : "live"] : ["", "no step yet"];
  }

  /** What changes without a frame, too. */
  facts() {
    const [kind, text] = this.badge();
    byId("badge").className = kind;
    byId("badge").title = text;
    say(byId("badge"), text);
    say(byId("rate"), this.paused ? "–" : this.rate.toFixed(1));
    const newest = this.history.newest;
    say(byId("age"), newest ? age(Date.now() / 1000 - newest.time) : "–");
    say(byId("dropped"), String(this.dropped));
  }

  /** For tests: how things are. */
  report() {
    return {
      name: this.name,
      connected: this.link.connected && this.greeted,
      state: this.state.state,
      why: this.state.why,
      step: this.shown?.step ?? null,
      newest: this.history.newest?.step ?? null,
      frames: this.frames,
      dropped: this.dropped,
      fps: this.rate,
      paused: this.paused,
      drawing: this.woken,
      history: { frames: this.history.frames.length, bytes: this.history.bytes },
      views: this.stage.list().filter((view) => view.head).map((view) => ({
        name: view.name, step: view.step, shape: view.head.shape, dtype: view.head.dtype, full: view.full,
        lo: view.lo, hi: view.hi, slice: view.head.slice ?? null, visible: view.visible,
        look: { ...view.look },
        range: view.range, found: view.found, zoom: view.camera.zoom, middle: [...view.camera.middle],
        stride: view.skip, under: view.under(),
      })),
    };
  }
}

/** Seconds for people. Clocks of two hosts differ: nothing is younger than now. */
function age(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

function start() {
  let page = null;
  watchTheme(() => page?.stage.mark("all"));
  const name = decodeURIComponent(location.pathname).replace(/^\/+|\/+$/g, "");
  if (!name) return showNames(byId("names"));
  page = new Page(name);
  window.polyduct = { state: () => page.report() };
}

start();
