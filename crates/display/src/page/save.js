// Files for the viewer: values as .npy, what is seen as .png.

/** NumPy's name of a type. It has none for bf16: two bytes, as ml_dtypes writes it. */
function descr(dtype) {
  if (dtype === "bf16") return "<V2";
  return (SIZES[dtype] === 1 ? "|" : "<") + dtype;
}

/** Header and exact bytes of one view. */
function npy({ dtype, shape, bytes }) {
  const tuple = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${descr(dtype)}', 'fortran_order': False, 'shape': (${tuple}), }`;
  const padded = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n";
  const head = new Uint8Array(10 + padded.length);
  head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, padded.length & 255, padded.length >> 8]);
  for (let i = 0; i < padded.length; i++) head[10 + i] = padded.charCodeAt(i);
  return [head, bytes];
}

function download(name, parts) {
  const url = URL.createObjectURL(new Blob(parts));
  element("a", { href: url, download: name.replaceAll("/", "-") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The values that are seen, a file for each view. */
function saveValues(name, views) {
  for (const { head, step } of views) if (head) download(`${name}-${head.name}-${step}.npy`, npy(head));
}

/** The tiles as they are seen, names and bars included, in the screen's resolution. */
function picture(node, views) {
  const dense = window.devicePixelRatio || 1;
  const all = node.getBoundingClientRect();
  const [width, height] = [all.width, all.height].map((n) => Math.round(n * dense));
  const canvas = element("canvas", { width, height });
  const g = canvas.getContext("2d");
  g.scale(dense, dense);
  g.translate(-all.left, -all.top);
  g.fillStyle = getComputedStyle(document.body).backgroundColor;
  g.fillRect(all.left, all.top, all.width, all.height);
  for (const view of views) {
    const within = view.pic.getBoundingClientRect();
    g.save();
    g.beginPath();
    g.rect(within.left, within.top, within.width, within.height);
    g.clip();
    for (const part of [view.canvas, view.over]) {
      if (part.hidden || !part.width) continue;
      const box = part.getBoundingClientRect();
      g.imageSmoothingEnabled = part.style.imageRendering !== "pixelated";
      g.drawImage(part, box.left, box.top, box.width, box.height);
    }
    g.restore();
    const bar = view.bar.canvas;
    const box = bar.getBoundingClientRect();
    if (!bar.hidden && bar.width) g.drawImage(bar, box.left, box.top, box.width, box.height);
    g.fillStyle = ink.text;
    g.font = `600 12px ${FONT}`;
    g.fillText(`${view.name}   step ${view.step}`, within.left + 6, within.top - 9);
  }
  return canvas;
}

function savePicture(name, step, node, views) {
  picture(node, views).toBlob((blob) => download(`${name}-${step}.png`, [blob]), "image/png");
}
