// Wavelengths against the trained length: which pairs never finish a turn in training.

function wavelengthFacts(state) {
  const of = subjectOf(state);
  const { doubles, scaling, refused } = shownNumbers(of);
  const plain = trainedNumbers(of).doubles;
  const wave = (omega) => (2 * Math.PI) / omega;
  const unfinished = plain.filter((omega) => omega > 0 && omega * of.trained < 2 * Math.PI).length;
  const turning = plain.filter((omega) => omega > 0).length;
  const [waves, trainedWaves] = [doubles.map(wave), plain.map(wave)];
  const pair = of.pair;
  const code = (chosen, last) => ["import math", ...frequenciesInPython(chosen, of.base, of.width), last].join("\n");
  const one = `print(f"{2 * math.pi / float(omega[${pair}]):.6f}" if omega[${pair}] else "inf")`;
  const count = `print(sum(0 < float(one) * ${of.trained} < 2 * math.pi for one in omega))`;
  const numbers = [
    { label: ["wave_trained", { pair }], value: fixed(trainedWaves[pair], 6), python: code(trainedScaling(of), one) },
    { label: ["unfinished_value", { length: grouped(of.trained) }], value: String(unfinished), python: code(trainedScaling(of), count) },
  ];
  const scaled = waves.some((value, i) => value !== trainedWaves[i]);
  if (scaled) numbers.splice(1, 0, { label: ["wave_scaled", { pair }], value: fixed(waves[pair], 6), python: code(scaling, one) });
  return {
    of, pair, waves, trainedWaves, unfinished, scaled, scaling, refused, numbers,
    sentence: [
      turning < of.pairs ? "waves_said_still" : unfinished ? "waves_said" : "waves_said_all",
      {
        turning,
        pairs: of.pairs, count: unfinished, length: grouped(of.trained), shortest: brief(trainedWaves[0]),
        longest: brief(Math.max(...trainedWaves.filter(Number.isFinite))),
      },
    ],
    columns: [["pair", {}], ["wave_as_trained", {}], ["wave_now", {}], ["turns_in_training", {}]],
    rows: waves.map((value, i) => [String(i), brief(trainedWaves[i]), brief(value), brief(of.trained / trainedWaves[i])]),
  };
}
