// Axes: from values to places, and where the ticks are; colours of values.

/** A function from [low, high] to [from, to], with `log`, `ticks(count)` and `invert`. */
function scaleOf(low, high, from, to, log = false) {
  const bend = log ? Math.log : (value) => value;
  const back = log ? Math.exp : (value) => value;
  const start = bend(low);
  const span = bend(high) - start || 1;
  const scale = (value) => from + ((bend(value) - start) / span) * (to - from);
  scale.invert = (place) => back(start + ((place - from) / (to - from)) * span);
  scale.ticks = (count) => (log ? logTicks(low, high, count) : linearTicks(low, high, count));
  return scale;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++)
    ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

/** Round values; of several sets the densest that has at most `count`. */
function logTicks(low, high, count) {
  for (const steps of [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of steps) {
        const tick = Number((step * 10 ** power).toPrecision(6));
        if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
      }
    }
    if (ticks.length <= count) return ticks.length > 1 ? ticks : linearTicks(low, high, count);
  }
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const every = Math.ceil((last - first + 1) / count);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, n) => 10 ** (first + n * every));
}

/** Powers of two, for sizes. */
function doublings(low, high, count) {
  const [first, last] = [Math.ceil(Math.log2(low) - 1e-9), Math.floor(Math.log2(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / count));
  const ticks = [];
  for (let power = first; power <= last; power += every) ticks.push(2 ** power);
  return ticks;
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** The colour of a part, 0 to 1, of the ramp. */
function rampColour(part) {
  const ramp = data.header.colours.ramp.map(channels);
  const place = Math.max(0, Math.min(1, part)) * (ramp.length - 1);
  const below = Math.min(Math.floor(place), ramp.length - 2);
  const mixed = ramp[below].map((value, n) => Math.round(value + (ramp[below + 1][n] - value) * (place - below)));
  return `rgb(${mixed.join(",")})`;
}
