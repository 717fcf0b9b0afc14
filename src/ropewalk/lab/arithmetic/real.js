// Real numbers as integers with 256 bits after the point: 77 digits, where the library has decimals of 60. A double has
// 16, too few for a phase that is exact at 2^40.
const POINT = 256n;
const ONE = 1n << POINT;

// The exact value of a double.
function real(value) {
  if (!Number.isFinite(value)) throw new RangeError(`${value} is not finite`);
  let places = 0n;
  while (!Number.isInteger(value)) {
    value *= 2;
    places += 1n;
  }
  return places <= POINT ? BigInt(value) << (POINT - places) : BigInt(value) >> (places - POINT);
}

// The nearest double: Number(BigInt) rounds once, and a power of two changes no digit.
const toDouble = (x) => Number(x) * 2 ** -Number(POINT);

const times = (x, y) => (x * y) >> POINT;
const over = (x, y) => (x << POINT) / y;
const floorOf = (x) => (x >> POINT) << POINT;
const ceilingOf = (x) => -floorOf(-x);
const larger = (x, y) => (x > y ? x : y);
const smaller = (x, y) => (x < y ? x : y);

// n / d to the nearest integer, ties to even; d > 0.
function nearest(n, d) {
  const twice = 2n * n + d;
  const floor = (a, b) => (a >= 0n ? a / b : -((b - 1n - a) / b));
  const found = floor(twice, 2n * d);
  return twice % (2n * d) === 0n && found % 2n !== 0n ? found - 1n : found;
}

// The sum of z^k / k over odd k; sign -1 alternates: atanh and atan.
function oddSeries(z, sign) {
  const square = sign * times(z, z);
  let power = z;
  let sum = 0n;
  for (let k = 1n; power !== 0n && power !== -1n; k += 2n) {
    sum += power / k;
    power = times(power, square);
  }
  return sum;
}

const PI = 16n * oddSeries(ONE / 5n, -1n) - 4n * oddSeries(ONE / 239n, -1n);
const LN2 = 2n * oddSeries(ONE / 3n, 1n);

function ln(x) {
  if (x <= 0n) throw new RangeError("the logarithm of a number that is not positive");
  const twos = BigInt(x.toString(2).length) - POINT;
  // x / 2^twos lies in [1/2, 1), where the series has 140 terms at most.
  const rest = twos >= 0n ? x >> twos : x << -twos;
  return twos * LN2 + 2n * oddSeries(over(rest - ONE, rest + ONE), 1n);
}

function exp(x) {
  const twos = nearest(x, LN2);
  const rest = x - twos * LN2;
  let sum = ONE;
  let term = ONE;
  for (let k = 1n; term !== 0n && term !== -1n; k += 1n) {
    term = times(term, rest) / k;
    sum += term;
  }
  return twos >= 0n ? sum << twos : sum >> -twos;
}

const power = (x, exponent) => exp(times(exponent, ln(x)));
