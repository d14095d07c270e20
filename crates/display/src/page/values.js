// Frames as they come: a header, and blobs of values that are looked at where they lie.

/** Bytes of an element, by NumPy's names without byte order. */
const SIZES = {
  b1: 1, u1: 1, i1: 1, u2: 2, i2: 2, f2: 2, bf16: 2, u4: 4, i4: 4, f4: 4, u8: 8, i8: 8, f8: 8, c8: 8, c16: 16,
};

/** Types that the browser has arrays of. */
const PLAIN = {
  b1: Uint8Array, u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array,
  i4: Int32Array, f4: Float32Array, f8: Float64Array,
};

const UTF8 = new TextDecoder();

const count = (shape) => shape.reduce((a, b) => a * b, 1);

/** A message: its text, with `bytes` in each view of a frame. Throws where the lengths do not fit. */
function parse(buffer) {
  if (buffer.byteLength < 4) throw new Error(`a message of ${buffer.byteLength} bytes has no header`);
  const length = new DataView(buffer).getUint32(0, true);
  if (length > buffer.byteLength - 4) {
    throw new Error(`a header of ${length} bytes in a message of ${buffer.byteLength}`);
  }
  const head = JSON.parse(UTF8.decode(new Uint8Array(buffer, 4, length)));
  if (head.type !== "frame") return head;
  const start = (4 + length + 7) & ~7;
  for (const view of head.views) {
    const bytes = count(view.shape) * SIZES[view.dtype];
    if (bytes !== view.len || start + view.at + view.len > buffer.byteLength) {
      throw new Error(`view ${view.name}: ${view.len} bytes at ${view.at}, expected ${bytes}`);
    }
    view.bytes = new Uint8Array(buffer, start + view.at, view.len);
  }
  head.size = buffer.byteLength;
  head.values ??= {};
  return head;
}

let halves = null;

/** All 65536 values of f2. */
function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let v = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    if (exponent === 31) v = fraction ? NaN : Infinity;
    halves[bits] = bits & 0x8000 ? -v : v;
  }
  return halves;
}

/** Values of a view as numbers: the bytes themselves, or what `keep.array` holds, which is used again. */
function numbers(view, keep) {
  const { dtype, bytes } = view;
  const n = bytes.length / SIZES[dtype];
  const as = (type, length = n) => new type(bytes.buffer, bytes.byteOffset, length);
  if (PLAIN[dtype]) return as(PLAIN[dtype]);
  const type = dtype === "f2" || dtype === "bf16" || dtype === "c8" ? Float32Array : Float64Array;
  if (!keep.array || keep.array.length !== n || !(keep.array instanceof type)) keep.array = new type(n);
  const out = keep.array;
  if (dtype === "f2") {
    const table = halfTable();
    const bits = as(Uint16Array);
    for (let i = 0; i < n; i++) out[i] = table[bits[i]];
  } else if (dtype === "bf16") {
    const bits = as(Uint16Array);
    const wide = new Uint32Array(out.buffer);
    for (let i = 0; i < n; i++) wide[i] = bits[i] << 16;
  } else if (dtype === "c8" || dtype === "c16") {
    const parts = as(type, 2 * n);
    for (let i = 0; i < n; i++) out[i] = Math.hypot(parts[2 * i], parts[2 * i + 1]);
  } else {
    // Two halves are quicker than BigInt, and round to the nearest number as well.
    const low = as(Uint32Array, 2 * n);
    const high = as(dtype === "i8" ? Int32Array : Uint32Array, 2 * n);
    for (let i = 0; i < n; i++) out[i] = high[2 * i + 1] * 4294967296 + low[2 * i];
  }
  return out;
}

/** One value as text with all its digits. */
function exact(view, values, i) {
  const { dtype, bytes } = view;
  const at = (type, k) => new type(bytes.buffer, bytes.byteOffset, bytes.length / type.BYTES_PER_ELEMENT)[k];
  switch (dtype) {
    case "u8": return String(at(BigUint64Array, i));
    case "i8": return String(at(BigInt64Array, i));
    case "b1": return values[i] ? "true" : "false";
    case "f8": return String(values[i]);
    case "c8": case "c16": {
      const type = dtype === "c8" ? Float32Array : Float64Array;
      const [re, im] = [at(type, 2 * i), at(type, 2 * i + 1)];
      return `${digits(re)}${im < 0 ? "−" : "+"}${digits(Math.abs(im))}j`;
    }
    default: return digits(values[i]);
  }
}

/** What f4 and less can tell apart. */
const digits = (v) => (Number.isInteger(v) ? String(v) : String(Number(v.toPrecision(8))));

/** A number in few letters, for ticks and tables. */
function short(v, places = 4) {
  if (!Number.isFinite(v)) return Number.isNaN(v) ? "NaN" : v > 0 ? "∞" : "−∞";
  if (v === 0) return "0";
  const size = Math.abs(v);
  const text = size >= 1e5 || size < 1e-3
    ? v.toExponential(Math.max(0, places - 2)).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(v.toPrecision(places)));
  return text.replace("-", "−");
}
