// Frequencies of RoPE under every scaling, as reals; the equations stand in ropewalk/scaling, one file for each kind.
// A scaling is a plain object with the fields that the library's class of that kind has.

const whole = (n) => BigInt(n) << POINT;

// base ** (-2i / width), fastest first.
function powers(base, width) {
  const step = exp((-2n * ln(base)) / BigInt(width));
  const found = [ONE];
  while (found.length < Math.ceil(width / 2)) found.push(times(found[found.length - 1], step));
  return found;
}

const ladder = (base, width) => powers(real(base), width);

// The share `kept` of a frequency as it is, the rest divided by the factor.
function blend(omega, factor, kept) {
  if (kept >= ONE) return omega;
  const divided = over(omega, factor);
  return kept <= 0n ? divided : omega - times(omega - divided, ONE - kept);
}

// Turns of a pair within the trained length.
const rotations = (omega, trained) => over(BigInt(trained) * omega, 2n * PI);

function yarnRamp(scaling, base, width) {
  const index = (turns) => {
    const length = over(whole(scaling.trained), 2n * times(real(turns), PI));
    return over(BigInt(width) * ln(length), 2n * ln(real(base)));
  };
  let start = index(scaling.beta_fast ?? 32);
  let end = index(scaling.beta_slow ?? 1);
  if (scaling.truncate ?? true) [start, end] = [floorOf(start), ceilingOf(end)];
  start = larger(start, 0n);
  end = smaller(end, whole(width - 1));
  if (start > end) throw new RangeError("yarn's ramp ends before it starts for this base and trained length");
  const length = end === start ? ONE / 1000n : end - start;
  return Array.from({ length: width / 2 }, (_, i) => ONE - over(whole(i) - start, length));
}

function scaledBase(base, factor, width) {
  if (width < 4) throw new RangeError("a width of 2 has no slowest pair beside the fastest");
  return times(real(base), power(factor, over(whole(width), whole(width - 2))));
}

const FREQUENCIES = {
  linear: (s, base, width) => ladder(base, width).map((omega) => over(omega, real(s.factor))),
  ntk: (s, base, width) => powers(scaledBase(base, real(s.factor), width), width),
  dynamic(s, base, width) {
    if (s.length <= s.trained) return ladder(base, width);
    const factor = real(s.factor);
    const grown = over(times(factor, whole(s.length)), whole(s.trained)) - (factor - ONE);
    return powers(scaledBase(base, grown, width), width);
  },
  yarn(s, base, width) {
    const omegas = ladder(base, width);
    const slow = real(s.beta_slow ?? 1);
    const fast = real(s.beta_fast ?? 32);
    const kept =
      s.ramp === "paper"
        ? omegas.map((omega) => over(rotations(omega, s.trained) - slow, fast - slow))
        : yarnRamp(s, base, width);
    return omegas.map((omega, i) => blend(omega, real(s.factor), kept[i]));
  },
  llama3(s, base, width) {
    const low = real(s.low ?? 1);
    const high = real(s.high ?? 4);
    return ladder(base, width).map((omega) => {
      const turned = rotations(omega, s.trained);
      const kept = low === high ? (turned > low ? ONE : 0n) : over(turned - low, high - low);
      return blend(omega, real(s.factor), kept);
    });
  },
  longrope(s, base, width) {
    const divisors = s.length > s.trained ? s.long : s.short;
    if (divisors.length !== width / 2) throw new RangeError(`${divisors.length} divisors for ${width / 2} pairs`);
    return ladder(base, width).map((omega, i) => over(omega, real(divisors[i])));
  },
  proportional(s, base, width) {
    const turning = Math.floor((s.fraction * width) / 2);
    return ladder(base, width).map((omega, i) => (i < turning ? over(omega, real(s.factor ?? 1)) : 0n));
  },
};

// scaling null: plain RoPE.
const frequencies = (scaling, base, width) =>
  scaling ? FREQUENCIES[scaling.kind](scaling, base, width) : ladder(base, width);

// What multiplies cos and sin.
function rotaryGain(s) {
  const yarn = (weight) => (s.factor <= 1 ? 1 : 0.1 * weight * Math.log(s.factor) + 1);
  if (!s || (s.kind !== "yarn" && s.kind !== "longrope")) return 1;
  if (s.attention_factor != null) return s.attention_factor;
  if (s.kind === "longrope") {
    const ratio = s.factor ?? (s.extended ? s.extended / s.trained : 1);
    return ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(s.trained));
  }
  if (s.dialect === "deepseek") return yarn(s.mscale ?? 1) / yarn(s.mscale_all_dim ?? 0);
  return s.mscale && s.mscale_all_dim ? yarn(s.mscale) / yarn(s.mscale_all_dim) : yarn(1);
}

// What multiplies every score.
function logitGain(s) {
  if (!s || s.dialect !== "deepseek" || s.factor <= 1) return 1;
  return (0.1 * (s.mscale_all_dim ?? 0) * Math.log(s.factor) + 1) ** 2;
}
