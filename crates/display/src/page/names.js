// The page at "/": all names with a small picture each.

const NAMES_EVERY = 2000;

/** What comes behind a path: the token that this page has, and `more`. */
const token = (more = "") => {
  const value = new URLSearchParams(location.search).get("token");
  const all = [value ? `token=${encodeURIComponent(value)}` : "", more].filter(Boolean).join("&");
  return all && `?${all}`;
};

const pathOf = (name) => `/${name.split("/").map(encodeURIComponent).join("/")}`;

function showNames(node) {
  node.hidden = false;
  document.title = "polyduct";
  const cards = new Map();
  const note = element("p", { class: "note", role: "status" });
  const list = element("div", { class: "cards" });
  node.replaceChildren(note, list);

  const card = (name) => {
    const image = element("img", { alt: "", width: 240, height: 150 });
    // No frame yet, or the program is gone: an empty place rather than a broken picture.
    image.addEventListener("error", () => { image.style.visibility = "hidden"; });
    image.addEventListener("load", () => { image.style.visibility = ""; });
    const text = element("small");
    const href = pathOf(name) + token();
    const made = element("a", { class: "card", href }, image, element("b", {}, name), text);
    cards.set(name, { made, image, text, step: null });
    return cards.get(name);
  };

  const update = async () => {
    try {
      const answer = await fetch(`/status.json${token()}`);
      if (!answer.ok) throw new Error(`status.json: ${answer.status}`);
      const { names } = await answer.json();
      const now = names.map((one) => {
        const has = cards.get(one.name) ?? card(one.name);
        if (one.step !== has.step) {
          has.step = one.step;
          has.image.src = `${pathOf(one.name)}.png${token(`step=${one.step}`)}`;
        }
        const viewers = one.viewers === 1 ? "1 viewer" : `${one.viewers ?? 0} viewers`;
        const state = one.state && one.state !== "running" ? `${one.state} · ` : "";
        const step = Number.isFinite(one.step) ? `step ${one.step}` : "no step yet";
        say(has.text, `${state}${step} · ${viewers}`);
        return has.made;
      });
      for (const name of cards.keys()) if (!names.some((one) => one.name === name)) cards.delete(name);
      if ([...list.children].some((child, k) => child !== now[k]) || list.children.length !== now.length) {
        list.replaceChildren(...now);
      }
      say(note, names.length ? "" : "No program shows anything yet.");
    } catch (error) {
      say(note, `The server does not answer (${error.message}); trying again.`);
    }
    setTimeout(update, NAMES_EVERY);
  };
  update();
}
