// The clocks of a head: the angle of every pair at one position, exactly.

function clockFacts(state) {
  const of = subjectOf(state);
  const { doubles, turns, scaling, refused } = shownNumbers(of);
  const plain = trainedNumbers(of).doubles;
  const position = BigInt(state.position);
  const phases = turns.map((turn) => phaseAt(position, turn));
  const angles = phases.map(angleOf);
  // Angles that training went through: all of them, or those from 0 to where a slow pair ended.
  // To its end, not to its last token: what a scaling brings back to within it ends between the two.
  const seen = plain.map((omega) => Math.min(omega * of.trained, 2 * Math.PI));
  const within = angles.map((angle, i) => (angle < 0 ? angle + 2 * Math.PI : angle) <= seen[i] * (1 + 1e-12));
  const pair = of.pair;
  const lines = [
    "import torch",
    "from ropewalk.phase import cos_sin, phase",
    ...frequenciesInPython(scaling, of.base, of.width, ["turns"]),
    `at = phase(torch.tensor(${position}), turns(omega))[${pair}]`,
  ];
  const number = (label, value, last) => ({ label: [label, { pair }], value, python: [...lines, ...last].join("\n") });
  const waves = ["cos, sin = cos_sin(at, torch.float64)"];
  return {
    of, pair, angles, seen, within, refused,
    position: state.position,
    numbers: [
      number("phase_value", String(phases[pair]), ["print(at.item())"]),
      number("angle_value", fixed(angles[pair], 10), ["import math", 'print(f"{at.item() * (2 * math.pi / 2**64) + 0.0:.10f}")']),
      number("cos_value", fixed(Math.cos(angles[pair]), 10), [...waves, 'print(f"{cos.item() + 0.0:.10f}")']),
      number("sin_value", fixed(Math.sin(angles[pair]), 10), [...waves, 'print(f"{sin.item() + 0.0:.10f}")']),
    ],
    sentence: [
      within.every(Boolean) ? "clocks_said_all" : "clocks_said",
      {
        position: grouped(state.position), trained: grouped(of.trained), pair, pairs: of.pairs, angle: fixed(angles[pair], 4),
        wave: brief((2 * Math.PI) / doubles[pair]), unseen: within.filter((one) => !one).length,
      },
    ],
    columns: [["pair", {}], ["wavelength", {}], ["phase", {}], ["angle", {}], ["seen", {}]],
    rows: angles.map((angle, i) => [
      String(i), brief((2 * Math.PI) / doubles[i]), String(phases[i]), fixed(angle, 10), [within[i] ? "seen_yes" : "seen_no", {}],
    ]),
  };
}
