// Encodings that add a number to each score, as in ropewalk/encodings: alibi, t5, kerple, fire.

// ALiBi: the slope of each head.
function slopes(heads) {
  const below = 2 ** Math.floor(Math.log2(heads));
  const two = (exponent) => toDouble(exp(times(real(exponent), LN2)));
  const even = Array.from({ length: below }, (_, h) => two((-8 * (h + 1)) / below));
  const between = Array.from({ length: heads - below }, (_, h) => two((-4 * (2 * h + 1)) / below));
  return [...even, ...between];
}

// T5: the distance at which each bucket after the first begins, found in integers.
function bucketEdges(buckets, farthest) {
  const exact = Math.floor(buckets / 2);
  const steps = BigInt(buckets - exact);
  const [e, f] = [BigInt(exact), BigInt(farthest)];
  const edges = Array.from({ length: exact }, (_, i) => BigInt(i + 1));
  for (let step = 1n; step < steps; step += 1n) {
    let distance = edges[edges.length - 1];
    while (distance ** steps * e ** step < f ** step * e ** steps) distance += 1n;
    edges.push(distance);
  }
  return edges.map(Number);
}

// T5: the bucket of key position - query position.
function bucketOf(ahead, edges, twoWay) {
  const apart = twoWay ? Math.abs(ahead) : Math.max(-ahead, 0);
  const bucket = edges.filter((edge) => apart >= edge).length;
  return twoWay && ahead > 0 ? bucket + edges.length + 1 : bucket;
}

const kerpleLog = (apart, scale, rate) => -scale * Math.log1p(rate * apart);
const kerplePower = (apart, scale, rate) => (apart === 0 ? -0 : -scale * apart ** rate);

// FIRE: the distance as a share of the query's position, which its network reads.
const fireShare = (query, apart, slope, threshold) =>
  Math.log1p(slope * apart) / Math.log1p(slope * Math.max(query, threshold));
