// Sinusoidal positions, a binary counter, and the products of positions with each other.

const SINUSOIDS_BASE = 10000;
const ROWS = 64;
const BITS = 6;

function sinusoidSubject(state) {
  const model = CHECKPOINTS.get(state.model);
  const of = model?.kind === "sinusoidal" ? model : { width: state.features, layout: "pairs" };
  return { width: of.width, layout: of.layout, feature: Math.min(state.feature, of.width - 1) };
}

// Features of one position, as the layout orders them.
function sinusoid(position, width, layout) {
  const angles = numbersOf(null, SINUSOIDS_BASE, width).turns.map((turn) => angleOf(phaseAt(BigInt(position), turn)));
  const [sines, cosines] = [angles.map(Math.sin), angles.map(Math.cos)];
  return layout === "half" ? [...sines, ...cosines] : sines.flatMap((sine, i) => [sine, cosines[i]]);
}

// Features of every row, and the product of every two rows; the same while only the choice among them moves.
let tableKnown = ["", null];
function sinusoidTable(width, layout) {
  const name = `${width} ${layout}`;
  if (tableKnown[0] !== name) {
    const table = Array.from({ length: ROWS }, (_, t) => sinusoid(t, width, layout));
    // sin a sin b + cos a cos b = cos (a - b): a product is that of the first row with the row as far away.
    const apart = table.map((row) => dot(table[0], row));
    const products = table.map((_, t) => table.map((_, s) => apart[Math.abs(t - s)]));
    tableKnown = [name, { table, products }];
  }
  return tableKnown[1];
}

function sinusoidFacts(state) {
  const { width, layout, feature } = sinusoidSubject(state);
  const { table, products } = sinusoidTable(width, layout);
  const [first, second] = [state.first, state.second];
  const pair = layout === "half" ? feature % (width / 2) : Math.floor(feature / 2);
  const sine = layout === "half" ? feature < width / 2 : feature % 2 === 0;
  const wavelength = (2 * Math.PI) / numbersOf(null, SINUSOIDS_BASE, width).doubles[pair];
  const waves = [
    "import torch",
    "from ropewalk.phase import cos_sin, phase",
    "from ropewalk.scaling import ladder, turns",
    "",
    `at = phase(torch.tensor([${first}, ${second}]), turns(ladder(${SINUSOIDS_BASE}, ${width})))`,
    "cos, sin = cos_sin(at, torch.float64)",
  ];
  const bits = first.toString(2).padStart(BITS, "0");
  return {
    width, layout, feature, table, products,
    numbers: [
      {
        label: ["feature_value", { t: first, f: feature }],
        value: fixed(table[first][feature], 10),
        python: [...waves, `print(f"{${sine ? "sin" : "cos"}[0, ${pair}].item() + 0.0:.10f}")`].join("\n"),
      },
      {
        label: ["product_value", { s: second, t: first }],
        value: fixed(products[first][second], 10),
        python: [...waves, 'print(f"{(cos[0] * cos[1] + sin[0] * sin[1]).sum().item() + 0.0:.10f}")'].join("\n"),
      },
      { label: ["binary_value", { t: first }], value: bits, python: `print(f"{${first}:0${BITS}b}")` },
    ],
    sentence: [
      "sinusoids_said",
      { width, t: first, bits, f: feature, wave: brief(wavelength), s: second, product: fixed(products[first][second], 4), most: brief(width / 2) },
    ],
    columns: [["position", {}], ["binary", {}], ["feature_n", { f: feature }], ["product_with", { t: first }]],
    rows: table.map((row, t) => [String(t), t.toString(2).padStart(BITS, "0"), fixed(row[feature], 6), fixed(products[first][t], 6)]),
  };
}
