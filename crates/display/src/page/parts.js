// Elements, canvases of the screen's resolution, and the colours that canvases draw with.

const FONT = "system-ui, sans-serif";
const ink = { text: "", dim: "", line: "", accent: "" };

/** Sets dark or light. Canvases cannot use CSS variables: `ink` has their values. */
function setTheme(name) {
  const root = document.documentElement;
  root.dataset.theme = name;
  const style = getComputedStyle(root);
  for (const name of Object.keys(ink)) ink[name] = style.getPropertyValue(`--${name}`).trim();
}

/** The theme that the system wants, or that was chosen here before; `changed()` after each change. */
function watchTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: light)");
  const wanted = () => (system.matches ? "light" : "dark");
  let kept = null;
  // Storage may be forbidden: then the choice is of this page alone.
  try { kept = localStorage.getItem("polyduct-theme"); } catch { /* as said */ }
  setTheme(kept === "light" || kept === "dark" ? kept : wanted());
  system.addEventListener("change", () => { setTheme(wanted()); changed(); });
  byId("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("polyduct-theme", next); } catch { /* as said */ }
    setTheme(next);
    changed();
  });
}

/** An element with attributes (functions are listeners), and children. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);

/** A cleared canvas in the screen's resolution; its context counts in CSS pixels. */
function sized(canvas) {
  const dense = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * dense), Math.round(canvas.clientHeight * dense)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const g = canvas.getContext("2d");
  g.setTransform(dense, 0, 0, dense, 0, 0);
  g.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return g;
}

/** Text only where it changes: layout is not done again for nothing. */
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
