// Files for the viewer: values as .npy or .npz, what is seen as .png.

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

let crcs = null;

function crc(parts) {
  crcs ??= Uint32Array.from({ length: 256 }, (_, n) => {
    for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  let c = -1;
  for (const part of parts) for (let i = 0; i < part.length; i++) c = crcs[(c ^ part[i]) & 255] ^ (c >>> 8);
  return ~c >>> 0;
}

/** Files in one archive without compression, as numpy.savez writes it. `files`: [name, parts]. */
function zip(files) {
  const [out, list] = [[], []];
  let at = 0;
  const put = (into, name, words) => {
    const bytes = new TextEncoder().encode(name);
    const head = new DataView(new ArrayBuffer(words.reduce((n, [size]) => n + size, 0)));
    let k = 0;
    for (const [size, value] of words) {
      if (size === 2) head.setUint16(k, value, true);
      else head.setUint32(k, value, true);
      k += size;
    }
    into.push(new Uint8Array(head.buffer), bytes);
    return head.byteLength + bytes.length;
  };
  for (const [name, parts] of files) {
    const size = parts.reduce((n, part) => n + part.length, 0);
    const length = new TextEncoder().encode(name).length;
    // Version 2.0, names in UTF-8, stored, 1980-01-01.
    const common = [[2, 20], [2, 0x800], [2, 0], [2, 0], [2, 0x21], [4, crc(parts)], [4, size], [4, size], [2, length], [2, 0]];
    put(list, name, [[4, 0x02014b50], [2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, at]]);
    at += put(out, name, [[4, 0x04034b50], ...common]) + size;
    out.push(...parts);
  }
  const size = list.reduce((n, part) => n + part.length, 0);
  const n = files.length;
  put(list, "", [[4, 0x06054b50], [2, 0], [2, 0], [2, n], [2, n], [4, size], [4, at], [2, 0]]);
  return [...out, ...list];
}

function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  element("a", { href: url, download: name.replaceAll("/", "-") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The values that are seen: one view as .npy, several as .npz. */
function saveValues(name, frame, views) {
  const heads = views.map((view) => view.head).filter(Boolean);
  if (!heads.length) return;
  const stem = `${name}-${frame.step}`;
  if (heads.length === 1) return download(`${stem}.npy`, npy(heads[0]), "application/octet-stream");
  download(`${stem}.npz`, zip(heads.map((head) => [`${head.name}.npy`, npy(head)])), "application/zip");
}

/** The tiles as they are seen, names and bars included, in the screen's resolution. */
function picture(node, views) {
  const dense = window.devicePixelRatio || 1;
  const all = node.getBoundingClientRect();
  const canvas = element("canvas", { width: Math.round(all.width * dense), height: Math.round(all.height * dense) });
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
  picture(node, views).toBlob((blob) => download(`${name}-${step}.png`, [blob], "image/png"), "image/png");
}
