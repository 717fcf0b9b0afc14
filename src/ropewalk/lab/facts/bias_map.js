// What the encodings of the bias family add to a score, for every query and key of a short text.

const CELLS = 64;
const FIRE = { slope: 0.1, threshold: 16 };

function biasSubject(state) {
  const model = CHECKPOINTS.get(state.model);
  if (model?.kind === "alibi") return { kind: "alibi", heads: model.heads };
  if (model?.kind === "t5") {
    return { kind: model.bidirectional ? "t5both" : "t5", heads: model.heads, buckets: model.buckets, farthest: model.farthest };
  }
  return { kind: state.bias, heads: state.heads, buckets: state.buckets, farthest: Math.max(state.farthest, state.buckets + 1) };
}

const KERPLE = ["kerple", "kerplepower"];

function biasRule(of, state) {
  const head = Math.min(state.head, of.heads);
  const bucketed = of.kind === "t5" || of.kind === "t5both";
  const edges = bucketed ? bucketEdges(of.kind === "t5both" ? of.buckets / 2 : of.buckets, of.farthest) : [];
  const slope = of.kind === "alibi" ? slopes(of.heads)[head - 1] : 0;
  const rules = {
    alibi: (i, j) => -slope * Math.abs(i - j),
    t5: (i, j) => bucketOf(j - i, edges, false),
    t5both: (i, j) => bucketOf(j - i, edges, true),
    kerple: (i, j) => kerpleLog(Math.abs(i - j), state.scale, state.rate),
    kerplepower: (i, j) => kerplePower(Math.abs(i - j), state.scale, state.rate),
    fire: (i, j) => fireShare(i, Math.abs(i - j), FIRE.slope, FIRE.threshold),
  };
  return { value: rules[of.kind], head, slope, edges, bucketed };
}

function biasInPython(of, state, head) {
  const { query, key, scale, rate } = state;
  const both = of.kind === "t5both";
  const asked = `at = torch.tensor(${query}), torch.tensor(${key})`;
  if (of.kind === "alibi") {
    return ["from ropewalk.encodings.alibi import slopes", "", `print(f"{-slopes(${of.heads})[${head - 1}] * abs(${query} - ${key}) + 0.0:.10f}")`];
  }
  if (of.kind === "t5" || both) {
    return [
      "import torch", "from ropewalk.encodings import T5", "",
      `t5 = T5(heads=1, buckets=${of.buckets}, farthest=${of.farthest}, bidirectional=${inPython(both)})`,
      `print(t5.bucket(torch.tensor(${key} - ${query})).item())`,
    ];
  }
  if (KERPLE.includes(of.kind)) {
    return [
      "import torch", "from ropewalk.encodings import Kerple", "",
      `kerple = Kerple(heads=1, form="${of.kind === "kerple" ? "log" : "power"}").double()`,
      `torch.nn.init.constant_(kerple.scale, ${inPython(scale)})`,
      `torch.nn.init.constant_(kerple.rate, ${inPython(rate)})`,
      asked,
      'print(f"{kerple.at([0]).bias(torch.tensor(0), *at).item() + 0.0:.10f}")',
    ];
  }
  return [
    "import torch", "from ropewalk.encodings import Fire", "",
    `fire = Fire(heads=1, hidden=1, slope=${FIRE.slope}, threshold=${FIRE.threshold}).double()`,
    "fire.requires_grad_(False)",
    "fire.slope.fill_(0.1), fire.inner.copy_(torch.tensor([[1.0], [0.0]])), fire.outer.fill_(1.0)",
    asked,
    'print(f"{fire.at([0]).bias(torch.tensor(0), *at).item() + 0.0:.10f}")',
  ];
}

function biasFacts(state) {
  const of = biasSubject(state);
  const rule = biasRule(of, state);
  const both = of.kind === "t5both";
  const visible = (i, j) => Math.abs(i - j) < state.window && (both || j <= i);
  const table = Array.from({ length: CELLS }, (_, i) =>
    Array.from({ length: CELLS }, (_, j) => (visible(i, j) ? rule.value(i, j) + 0 : null)),
  );
  const { query, key } = state;
  const here = rule.value(query, key) + 0;
  const shown = rule.bucketed ? String(here) : fixed(here, 10);
  const what = rule.bucketed ? "t5" : of.kind === "fire" ? "fire" : "score";
  const numbers = [
    { label: [`bias_value_${what}`, { i: query, j: key }], value: shown,
      python: biasInPython(of, state, rule.head).join("\n") },
  ];
  if (of.kind === "alibi") {
    numbers.unshift({ label: ["slope_value", { head: rule.head, heads: of.heads }], value: fixed(rule.slope, 10),
      python: `from ropewalk.encodings.alibi import slopes\n\nprint(f"{slopes(${of.heads})[${rule.head - 1}]:.10f}")` });
  }
  return {
    of, table, query, key, both,
    head: rule.head, edges: rule.edges, bucketed: rule.bucketed,
    hidden: !visible(query, key),
    numbers,
    sentence: [
      visible(query, key) ? `bias_said_${KERPLE.includes(of.kind) ? "kerple" : what}` : "bias_said_hidden",
      { i: query, j: key, apart: Math.abs(query - key), value: rule.bucketed ? shown : fixed(here, 4), name: of.kind, head: rule.head },
    ],
    columns: [["key", {}], ["distance", {}], [rule.bucketed ? "bucket" : of.kind === "fire" ? "share" : "bias_column", {}]],
    rows: table[query].flatMap((value, j) =>
      value === null ? [] : [[String(j), String(Math.abs(query - j)), rule.bucketed ? String(value) : fixed(value, 6)]],
    ),
  };
}
