// All scalings over each other: how many times slower each pair turns.

function scalingFacts(state) {
  const of = subjectOf(state);
  const plain = trainedNumbers(of).doubles;
  const pair = of.pair;
  const slower = {};
  const gains = {};
  const refused = [];
  const every = candidates(of.own, of.trained, of.to, of.reach);
  if (of.own) every.own = of.own;
  for (const [name, scaling] of Object.entries(every)) {
    try {
      const now = numbersOf(scaling, of.base, of.width).doubles;
      slower[name] = plain.map((omega, i) => omega / now[i]);
      gains[name] = rotaryGain(scaling);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      refused.push(name);
    }
  }
  // A checkpoint's own scaling is one of them already where it is meant for this very length.
  const repeated = Object.keys(slower).find((name) => name !== "own" && same(slower[name], slower.own) && gains[name] === gains.own);
  if (repeated) delete slower.own;
  const code = (scaling) => {
    const names = [...new Set([CLASSES[scaling.kind], trainedScaling(of) ? CLASSES[trainedScaling(of).kind] : "ladder"])];
    const plainly = trainedScaling(of) ? `${scalingInPython(trainedScaling(of))}.frequencies` : "ladder";
    return [
      `from ropewalk.scaling import ${names.sort().join(", ")}`,
      "",
      `scaling = ${scalingInPython(scaling)}`,
      `plain = ${plainly}(${inPython(of.base)}, ${of.width})[${pair}]`,
      `scaled = scaling.frequencies(${inPython(of.base)}, ${of.width})[${pair}]`,
      'print(f"{float(plain) / float(scaled):.6f} {scaling.rotary_gain:.6f}" if scaled else "nan")',
    ].join("\n");
  };
  return {
    of, pair, slower, gains, refused,
    scalings: every,
    numbers: Object.keys(slower).map((name) => ({
      label: ["slower_value", { name: scalingTitle(name, every), pair }],
      value: Number.isNaN(slower[name][pair]) ? "nan" : `${fixed(slower[name][pair], 6)} ${fixed(gains[name], 6)}`,
      python: code(every[name]),
    })),
    sentence: [
      "scalings_said",
      {
        trained: grouped(of.trained), to: grouped(of.to), factor: brief(of.to / of.trained), pair, pairs: of.pairs,
        list: Object.keys(slower).map((name) => `${scalingTitle(name, every)} ${Number.isNaN(slower[name][pair]) ? "\u2013" : brief(slower[name][pair])}`).join(", "),
      },
    ],
    columns: [["pair", {}], ...Object.keys(slower).map((name) => ["plain_text", { text: scalingTitle(name, every) }])],
    rows: plain.map((_, i) => [String(i), ...Object.values(slower).map((values) => (Number.isNaN(values[i]) ? "" : brief(values[i])))]),
  };
}

const same = (one, other) => Boolean(other) && one.every((value, i) => value === other[i]);

// Names of scalings are names of code, the same in every language.
function scalingTitle(name, every) {
  const scaling = every[name];
  const factor = scaling.factor ?? (scaling.extended ? scaling.extended / scaling.trained : undefined);
  return name === "own" ? `config.json (${scaling.kind}${factor ? ` \u00d7${brief(factor)}` : ""})` : name;
}
