// From values to the range that colours stand for, and ticks for it.

/** How many values percentiles and the histogram look at; fewer are all looked at. */
const SAMPLE = 16384;

// Two of each, so that a comparison need not wait for the one before. A loop for f4 alone: see colour.js.

function extremesF4(values) {
  let [a, b, c, d] = [Infinity, Infinity, -Infinity, -Infinity];
  const even = values.length & ~1;
  for (let i = 0; i < even; i += 2) {
    const v = values[i];
    const w = values[i + 1];
    if (v < a) a = v;
    if (v > c) c = v;
    if (w < b) b = w;
    if (w > d) d = w;
  }
  for (let i = even; i < values.length; i++) { a = Math.min(a, values[i]); c = Math.max(c, values[i]); }
  return [Math.min(a, b), Math.max(c, d)];
}

function extremesAny(values) {
  let [lo, hi] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const v = values[i];
    if (v < lo) lo = v;
    if (v > hi) hi = v;
  }
  return [lo, hi];
}

function extremesWhere(values, fits) {
  let [lo, hi] = [Infinity, -Infinity];
  for (let i = 0; i < values.length; i++) {
    const v = values[i];
    if (!fits(v)) continue;
    if (v < lo) lo = v;
    if (v > hi) hi = v;
  }
  return [lo, hi];
}

/** Least and greatest finite value, or null. NaN compares with nothing: one pass mostly does. */
function extremes(values) {
  let [lo, hi] = values instanceof Float32Array ? extremesF4(values) : extremesAny(values);
  if (!(Number.isFinite(lo) && Number.isFinite(hi))) [lo, hi] = extremesWhere(values, Number.isFinite);
  return lo <= hi ? [lo, hi] : null;
}

/** At most SAMPLE finite values, in order. Steps share no factor with usual widths: not one column alone. */
function sample(values) {
  let step = Math.max(1, Math.ceil(values.length / SAMPLE));
  if (step > 1) while (step % 2 === 0 || step % 3 === 0 || step % 5 === 0) step++;
  const out = new Float64Array(Math.ceil(values.length / step));
  let n = 0;
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) out[n++] = values[i];
  return out.subarray(0, n).sort();
}

/** As NumPy's percentile of values that are in order. */
function percentile(sorted, percent) {
  const at = (sorted.length - 1) * percent / 100;
  const k = Math.floor(at);
  const next = sorted[Math.min(k + 1, sorted.length - 1)];
  return sorted[k] + (next - sorted[k]) * (at - k);
}

/** What a view's colours mean: which table, which range. `table` is null until the first values are seen. */
const newLook = () => ({ table: null, scale: "linear", mode: "auto", percent: 1, hand: null });

/** Values on both sides of zero, and not by a little. */
const signed = ([lo, hi]) => lo < 0 && hi > 0 && Math.min(-lo, hi) > 0.05 * Math.max(-lo, hi);

/** The range of a look for these values: {lo, hi, log}, lo < hi. */
function rangeOf(look, values, dtype, found) {
  let [lo, hi] = found ?? [0, 1];
  if (look.mode === "hand" && look.hand) {
    [lo, hi] = look.hand;
  } else if (look.mode === "percentile" && found) {
    const sorted = sample(values);
    if (sorted.length) [lo, hi] = [percentile(sorted, look.percent), percentile(sorted, 100 - look.percent)];
  } else if (dtype === "b1") {
    [lo, hi] = [0, 1];
  }
  if (look.scale === "symmetric") {
    const most = Math.max(Math.abs(lo), Math.abs(hi)) || 1;
    return { lo: -most, hi: most, log: false };
  }
  if (look.scale === "log") {
    if (!(lo > 0)) lo = extremesWhere(values, (v) => v > 0 && v < Infinity)[0];
    // Nothing positive: any range does, all pixels are empty.
    if (!(lo < Infinity)) [lo, hi] = [0.1, 1];
    return { lo, hi: hi > lo ? hi : lo * 10, log: true };
  }
  if (hi > lo) return { lo, hi, log: false };
  const wide = Math.abs(lo) * 1e-3 || 1;
  return { lo: lo - wide, hi: lo + wide, log: false };
}

const forward = (log) => (log ? (v) => Math.log(Math.max(v, Number.MIN_VALUE)) : (v) => v);
const backward = (log) => (log ? Math.exp : (v) => v);

/** About `n` round values within lo..hi. */
function ticks(lo, hi, n, log = false) {
  if (!(hi > lo)) return [lo];
  if (log && hi / lo >= 10) {
    const [first, last] = [Math.ceil(Math.log10(lo) - 1e-9), Math.floor(Math.log10(hi) + 1e-9)];
    const each = Math.max(1, Math.ceil((last - first + 1) / n));
    const out = [];
    for (let e = first; e <= last; e += each) out.push(10 ** e);
    if (out.length > 1 || last === first) return out;
  }
  const rough = (hi - lo) / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999) ?? 10 * power;
  const out = [];
  for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && out.length < 50; k++) {
    out.push(Number((k * step).toPrecision(12)));
  }
  return out;
}
