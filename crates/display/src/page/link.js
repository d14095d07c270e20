// The websocket: it comes back by itself, and says what is wanted.

const SOONEST = 500;
const LATEST = 5000;
/** Milliseconds between two `want`s of one view. */
const WANT_EVERY = 100;

class Link {
  /** `told` has open(), closed(milliseconds to the next try), text(message), and frame(buffer). */
  constructor(url, told) {
    this.url = url;
    this.told = told;
    this.wait = SOONEST;
    this.connect();
    addEventListener("online", () => this.now());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.now(); });
  }

  get connected() { return this.socket?.readyState === WebSocket.OPEN; }

  connect() {
    this.timer = null;
    const socket = (this.socket = new WebSocket(this.url));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.told.open();
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") return this.told.frame(data);
      const message = JSON.parse(data);
      if (message.type === "hello") this.wait = SOONEST;
      this.told.text(message);
    };
    socket.onclose = () => {
      this.told.closed(this.wait);
      this.timer = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(LATEST, this.wait * 1.6);
    };
  }

  /** Tries at once, if it was waiting. */
  now() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.connect();
  }

  send(message) {
    if (this.connected) this.socket.send(JSON.stringify(message));
  }
}

/** What the viewer looks at, told to the server when it changed, and not too often. */
class Wants {
  constructor(views, send) {
    this.views = views;
    this.send = send;
    this.timer = null;
    this.last = 0;
  }

  soon() {
    const every = Math.max(WANT_EVERY, WANT_EVERY / 8 * this.views().length);
    this.timer ??= setTimeout(() => this.flush(), Math.max(0, this.last + every - performance.now()));
  }

  flush() {
    this.timer = null;
    this.last = performance.now();
    for (const view of this.views()) {
      const want = view.want();
      if (!want) continue;
      const text = JSON.stringify(want);
      if (text === view.asked) continue;
      // The overview that everybody gets is shared: nothing is asked for that it has, without being much too fine.
      const shape = view.head.shape;
      const overview = view.camera.fitted && !view.dims.chosen;
      const enough = want.pixels.every((n, k) => n <= 1.5 * shape[k] && n >= 0.8 * shape[k]);
      if (view.asked === null && overview && enough) continue;
      view.asked = text;
      this.send(want);
    }
  }

  /** A new connection knows nothing of what was asked before. */
  again() {
    for (const view of this.views()) view.asked = null;
    this.soon();
  }
}
