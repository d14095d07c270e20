// The connection: what is shown comes by a body that is fetched, ten times as fast as by a websocket, by which is
// said what is wanted. It comes back by itself.

const SOONEST = 500;
const LATEST = 5000;
/** Milliseconds between two `want`s of one view. */
const WANT_EVERY = 100;

class Link {
  /** `told` has open(), closed(milliseconds to the next try), and message(buffer). */
  constructor(url, told) {
    this.url = url;
    this.told = told;
    this.wait = SOONEST;
    this.timer = this.stop = null;
    this.connected = false;
    this.now();
    addEventListener("online", () => this.now());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop?.abort() : this.now()));
  }

  async connect() {
    this.timer = null;
    this.stop = new AbortController();
    const socket = (this.socket = new WebSocket(this.url("/ws").replace("http", "ws")));
    // A server that ends closes this in good order, and there may be more in the body.
    socket.onclose = ({ wasClean }) => { if (!wasClean || !this.connected) this.stop.abort(); };
    try {
      await this.read(await this.greeted(socket));
    } catch { /* whatever it was, the next try follows */ }
    socket.onclose = null;
    socket.close();
    this.connected = false;
    this.told.closed(this.wait);
    this.timer = setTimeout(() => this.now(), this.wait);
    this.wait = Math.min(LATEST, this.wait * 1.6);
  }

  /** The id of this viewer, by which it gets its body. */
  greeted(socket) {
    return new Promise((done, failed) => {
      socket.onmessage = ({ data }) => done(JSON.parse(data).id);
      this.stop.signal.addEventListener("abort", failed);
    });
  }

  /** Reads messages of the body until it ends: of each eight bytes of length before it. */
  async read(id) {
    const answer = await fetch(this.url("/frames", `viewer=${id}`), { signal: this.stop.signal });
    if (!answer.ok) throw new Error(await answer.text());
    const reader = answer.body.getReader();
    this.connected = true;
    this.told.open();
    let chunk = new Uint8Array();
    const fill = async (bytes) => {
      for (let at = 0; at < bytes.length;) {
        if (!chunk.length) {
          const { done, value } = await reader.read();
          if (done) throw new Error("the body has ended");
          chunk = value;
        }
        const part = chunk.subarray(0, bytes.length - at);
        bytes.set(part, at);
        at += part.length;
        chunk = chunk.subarray(part.length);
      }
      return bytes.buffer;
    };
    while (true) {
      const length = new DataView(await fill(new Uint8Array(8))).getBigUint64(0, true);
      const message = await fill(new Uint8Array(Number(length)));
      try { this.told.message(message); } catch (error) { reportError(error); }
      this.wait = SOONEST;
    }
  }

  /** Tries at once, if it was waiting and somebody looks: a browser has but a few bodies of one address. */
  now() {
    if (document.hidden || this.socket && !this.timer) return;
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
