// Exact angles, as in ropewalk/phase.py: a frequency is a 64-bit fraction of a turn, and integers wrap where angles do.

const turnOf = (omega) => BigInt.asIntN(64, nearest(omega << 64n, 2n * PI));

const phaseAt = (position, turn) => BigInt.asIntN(64, position * turn);

const angleOf = (phase) => Number(phase) * ((2 * Math.PI) / 2 ** 64);

// What much code takes for the angle: position and frequency rounded to float32, and so is their product.
const angle32 = (position, frequency) => Math.fround(Math.fround(Number(position)) * Math.fround(frequency));

// Numbers in [-2, 2) in steps of 1/64: the inputs of the golden vectors.
function inputs(count, seed) {
  let state = BigInt(seed);
  return Array.from({ length: count }, () => {
    state = (1103515245n * state + 12345n) % 2147483648n;
    return (Number((state >> 16n) % 256n) - 128) / 64;
  });
}

// One head's vector, rotated by the angle of each pair.
function rotated(x, angles, layout, gain = 1) {
  const found = [...x];
  angles.forEach((angle, i) => {
    const [a, b] = layout === "pairs" ? [2 * i, 2 * i + 1] : [i, i + angles.length];
    const cos = gain * Math.cos(angle);
    const sin = gain * Math.sin(angle);
    found[a] = x[a] * cos - x[b] * sin;
    found[b] = x[b] * cos + x[a] * sin;
  });
  return found;
}

const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
