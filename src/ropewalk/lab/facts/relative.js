// The relative law: a score depends on how far apart two tokens are, and on nothing else, if the angles are exact.

const SHIFTS = Array.from({ length: 41 }, (_, i) => Math.min(2 ** i, FARTHEST - 4096));

let vectorsKnown = [0, []];
// q . k / sqrt(width) of the golden vectors' inputs, the query `apart` tokens after the key.
function scoreAt(of, numbers, shift, apart, product) {
  if (vectorsKnown[0] !== of.width) vectorsKnown = [of.width, [inputs(of.width, 1), inputs(of.width, 2)]];
  const [q, k] = vectorsKnown[1];
  const gain = rotaryGain(numbers.scaling);
  const turned = (x, position) => {
    const angles =
      product === "exact"
        ? numbers.turns.map((turn) => angleOf(phaseAt(BigInt(position), turn)))
        : numbers.doubles.map((omega) => angle32(position, omega));
    return rotated(x, angles, of.layout, gain);
  };
  return dot(turned(q, shift + apart), turned(k, shift)) / Math.sqrt(of.width);
}

function relativeInPython(of, scaling, shift, apart, product) {
  const common = [
    "import torch",
    "from ropewalk.conformance.vectors.arrays import inputs",
  ];
  const vectors = [
    `q = torch.tensor([inputs(${of.width}, 1)], dtype=torch.float64)`,
    `k = torch.tensor([inputs(${of.width}, 2)], dtype=torch.float64)`,
  ];
  const shown = `print(f"{(q * k).sum().item() / ${of.width} ** 0.5 + 0.0:.10f}")`;
  if (product === "exact") {
    const given = [`head_width=${of.width}`, `base=${inPython(of.base)}`, `layout=${inPython(of.layout)}`];
    if (scaling) given.push(`scaling=${scalingInPython(scaling)}`);
    return [
      ...common,
      "from ropewalk.encodings import RoPE",
      ...(scaling ? [`from ropewalk.scaling import ${CLASSES[scaling.kind]}`] : []),
      "",
      `rope = RoPE(${given.join(", ")}, precision="float64")`,
      ...vectors,
      `at = rope.at([${shift + apart}], [${shift}])`,
      'q, k = at.rotate(q, "query"), at.rotate(k, "key")',
      shown,
    ].join("\n");
  }
  return [
    ...common,
    "from ropewalk.rotation import rotate",
    ...frequenciesInPython(scaling, of.base, of.width),
    ...vectors,
    "single = torch.tensor([float(one) for one in omega], dtype=torch.float32)",
    `gain = ${scaling ? `${scalingInPython(scaling)}.rotary_gain` : "1.0"}`,
    "def turned(x, position):",
    "    angle = (torch.tensor(float(position), dtype=torch.float32) * single).double()",
    `    return rotate(x[None, None], gain * angle.cos()[None, None, None], gain * angle.sin()[None, None, None], ${inPython(of.layout)})[0, 0]`,
    `q, k = turned(q, ${shift + apart}), turned(k, ${shift})`,
    shown,
  ].join("\n");
}

// How far the score is from that of the first tokens, at every shift; the same while only the shift moves.
let changesKnown = ["", null];
function changes(of, numbers, apart) {
  const name = JSON.stringify([numbers.scaling, of.base, of.width, of.layout, apart]);
  if (changesKnown[0] !== name) {
    const found = ["exact", "float32"].map((how) => {
      const from = scoreAt(of, numbers, 0, apart, how);
      return [how, SHIFTS.map((where) => Math.abs(scoreAt(of, numbers, where, apart, how) - from))];
    });
    changesKnown = [name, Object.fromEntries(found)];
  }
  return changesKnown[1];
}

function relativeFacts(state) {
  const of = subjectOf(state);
  const numbers = shownNumbers(of);
  const { shift, apart, product } = state;
  const score = (where, how) => scoreAt(of, numbers, where, apart, how);
  const here = score(shift, product);
  const origin = score(0, product);
  // Digits after the point that the shift has left as they were.
  const [now, then] = [fixed(here, 10), fixed(origin, 10)];
  let same = 0;
  while (same < now.length && now.length === then.length && now[same] === then[same]) same += 1;
  const moved = changes(of, numbers, apart);
  return {
    of, refused: numbers.refused, shift, apart, product, digits: [now, same], moved,
    change: Math.abs(here - origin),
    numbers: [
      { label: ["score_value", { m: grouped(shift + apart), n: grouped(shift) }], value: now,
        python: relativeInPython(of, numbers.scaling, shift, apart, product) },
      { label: ["score_start", { m: grouped(apart), n: 0 }], value: then,
        python: relativeInPython(of, numbers.scaling, 0, apart, product) },
    ],
    sentence: [
      now === then ? "relative_said_same" : "relative_said_moved",
      { m: grouped(shift + apart), n: grouped(shift), score: now, was: then, change: brief(Math.abs(here - origin)) },
    ],
    columns: [["shift", {}], ["exact_change", {}], ["float32_change", {}]],
    rows: SHIFTS.map((where, i) => [grouped(where), ...[moved.exact[i], moved.float32[i]].map((change) => (change ? change.toExponential(1) : "0"))]),
  };
}
