// Values to pixels: tables of colours, and the loops that everything waits for.

/** Place of NaN, +∞ and −∞ behind a table's 256 colours. */
const NOT = 256;
const OVER = 257;
const UNDER = 258;
const SOLID = 0xff000000;

const tables = {};
const strips = {};

/** A table as pixels, with what NaN and the infinities get: nothing, pink and cyan, which no table has. */
function table(name) {
  if (tables[name]) return tables[name];
  const out = new Uint32Array(259);
  const { first = [0, 0, 0] } = TABLES[name] ?? {};
  const rest = TABLES[name]?.rest.replace(/\s/g, "");
  const rgb = [...first];
  for (let i = 0; i < 256; i++) {
    out[i] = rgb[0] | rgb[1] << 8 | rgb[2] << 16 | SOLID;
    for (let k = 0; k < 3; k++) rgb[k] += rest ? rest.charCodeAt(3 * i + k) - 80 : 1;
  }
  out[NOT] = 0;
  out[OVER] = 0xffd84fff;
  out[UNDER] = 0xffffe500;
  return (tables[name] = out);
}

const TABLE_NAMES = [...Object.keys(TABLES).slice(0, 4), "grey", ...Object.keys(TABLES).slice(4)];
const diverging = (name) => TABLES[name]?.kind === "diverging";

/** The 256 colours in a row, as a picture to draw bars with. */
function strip(name) {
  if (strips[name]) return strips[name];
  const canvas = element("canvas", { width: 256, height: 1 });
  const bytes = new Uint8ClampedArray(table(name).slice(0, 256).buffer);
  canvas.getContext("2d").putImageData(new ImageData(bytes, 256, 1), 0, 0);
  return (strips[name] = canvas);
}

/** A CSS colour of entry `i`. */
function css(name, i) {
  const c = table(name)[i];
  return `rgb(${c & 255},${(c >> 8) & 255},${(c >> 16) & 255})`;
}

// A loop that has met arrays of more than four types looks each value's type up, and takes five times as
// long. So f4, which most pictures are, has loops of its own that other views cannot slow down.

function linearF4(out, values, width, height, step, lo, factor, colours) {
  const [first, last, not, over, under] = ends(colours);
  for (let y = 0, o = 0; y < height; y += step) {
    for (let i = y * width, end = i + width; i < end; i += step) {
      const v = values[i];
      const t = (v - lo) * factor;
      out[o++] = t >= 0
        ? (t < 256 ? colours[t | 0] : v === Infinity ? over : last)
        : (t < 0 ? (v === -Infinity ? under : first) : not);
    }
  }
}

function linearAny(out, values, width, height, step, lo, factor, colours) {
  const [first, last, not, over, under] = ends(colours);
  for (let y = 0, o = 0; y < height; y += step) {
    for (let i = y * width, end = i + width; i < end; i += step) {
      const v = values[i];
      const t = (v - lo) * factor;
      out[o++] = t >= 0
        ? (t < 256 ? colours[t | 0] : v === Infinity ? over : last)
        : (t < 0 ? (v === -Infinity ? under : first) : not);
    }
  }
}

const ends = (colours) => [colours[0], colours[255], colours[NOT], colours[OVER], colours[UNDER]];

/** Entry of one value on a logarithmic scale. What has no logarithm is as NaN. */
function logEntry(v, logLo, factor) {
  if (!(v > 0)) return v === -Infinity ? UNDER : NOT;
  if (v === Infinity) return OVER;
  const t = (Math.log(v) - logLo) * factor;
  return t < 0 ? 0 : t < 256 ? t | 0 : 255;
}

function logarithmic(out, values, width, height, step, lo, hi, colours) {
  const logLo = Math.log(lo);
  const factor = 256 / (Math.log(hi) - logLo);
  for (let y = 0, o = 0; y < height; y += step) {
    for (let i = y * width, end = i + width; i < end; i += step) {
      out[o++] = colours[logEntry(values[i], logLo, factor)];
    }
  }
}

/** Colours each `step`-th value of each `step`-th row. Entry of v: floor(256 (v − lo) / (hi − lo)), 0..255. */
function paint(out, values, width, height, step, range, colours) {
  const { lo, hi, log } = range;
  if (log) return logarithmic(out, values, width, height, step, lo, hi, colours);
  const linear = values instanceof Float32Array ? linearF4 : linearAny;
  linear(out, values, width, height, step, lo, 256 / (hi - lo), colours);
}

/** Each `step`-th pixel of each `step`-th row in the colours that it has; what is no number is nothing. */
function paintChannels(out, values, { dtype, shape: [height, width, channels] }, step) {
  // Arrays of the screen's bytes round and clamp by themselves.
  const factor = dtype === "u1" ? 1 : 255;
  for (let y = 0, o = 0; y < height; y += step) {
    for (let x = 0, i = y * width * channels; x < width; x += step, i += step * channels, o += 4) {
      const [r, g, b] = [values[i], values[i + 1], values[i + 2]];
      out[o] = r * factor;
      out[o + 1] = g * factor;
      out[o + 2] = b * factor;
      out[o + 3] = Number.isNaN(r + g + b) ? 0 : channels === 4 ? values[i + 3] * factor : 255;
    }
  }
}
