// All that a reader can set. A link holds what differs from the start; what a link holds is checked like any input.

const FARTHEST = 2 ** 40;

const oneOf = (...choices) => ({ start: choices[0], read: (text) => (choices.includes(text) ? text : undefined) });

function number(start, low, high, step = 0) {
  const read = (text) => {
    const value = Number(text);
    if (text === "" || !Number.isFinite(value)) return undefined;
    const near = step ? low + Math.round((value - low) / step) * step : value;
    return Math.min(Math.max(near, low), high);
  };
  return { start, read, low, high };
}

const integer = (start, low, high, step = 1) => number(start, low, high, step);

const FIELDS = {
  model: { start: "llama-3-8b", read: (text) => (text === "" || CHECKPOINTS.has(text) ? text : undefined) },
  base: number(10000, 1.001, 1e12),
  width: integer(128, 4, 512, 2),
  trained: integer(4096, 2, FARTHEST),
  scaling: oneOf("own", "none", "linear", "ntk", "dynamic", "yarn", "llama3"),
  to: integer(131072, 2, FARTHEST),
  pair: integer(32, 0, 255),
  features: integer(64, 4, 512, 2),
  first: integer(20, 0, 63),
  second: integer(5, 0, 63),
  feature: integer(12, 0, 511),
  position: integer(100000, 0, FARTHEST),
  apart: integer(7, 0, 4096),
  shift: integer(1000000, 0, FARTHEST - 4096),
  product: oneOf("exact", "float32"),
  bias: oneOf("alibi", "t5", "t5both", "kerple", "kerplepower", "fire"),
  heads: integer(8, 1, 128),
  head: integer(1, 1, 128),
  query: integer(40, 0, 63),
  key: integer(22, 0, 63),
  window: integer(64, 1, 64),
  buckets: integer(32, 4, 128, 4),
  farthest: integer(128, 33, 4096),
  scale: number(1, 0.01, 4),
  rate: number(0.5, 0.01, 2),
};

const start = () => Object.fromEntries(Object.entries(FIELDS).map(([name, field]) => [name, field.start]));

// What a link says, on top of the start; whatever it gets wrong stays as it was.
function fromLink(text) {
  const state = start();
  for (const [name, value] of new Map(linkPairs(text))) {
    const read = Object.hasOwn(FIELDS, name) ? FIELDS[name].read(value) : undefined;
    if (read !== undefined) state[name] = read;
  }
  return state;
}

function linkPairs(text) {
  return text.split("&").filter((part) => part.includes("=")).map((part) => {
    const [name, value] = [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)];
    try {
      return [name, decodeURIComponent(value)];
    } catch {
      return [name, ""];
    }
  });
}

const toLink = (state) =>
  Object.keys(FIELDS)
    .filter((name) => state[name] !== FIELDS[name].start)
    .map((name) => `${name}=${encodeURIComponent(state[name])}`)
    .join("&");

// A position on a slider that has the same room for each power of two; 0 is at its left end.
const SLIDER = 2000;
const toSlider = (value, most) => (value < 1 ? 0 : 1 + Math.round(((SLIDER - 1) * Math.log2(value)) / Math.log2(most)));
const fromSlider = (at, most) => (at <= 0 ? 0 : Math.round(2 ** (((at - 1) / (SLIDER - 1)) * Math.log2(most))));
