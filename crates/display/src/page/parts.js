// Elements, canvases of the screen's resolution, and the colours that canvases draw with.

const FONT = "system-ui, sans-serif";
const ink = { text: "", dim: "", line: "", accent: "" };

/** Canvases cannot use CSS variables: called at the start and after each change of the theme. */
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of Object.keys(ink)) ink[name] = style.getPropertyValue(`--${name}`).trim();
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
