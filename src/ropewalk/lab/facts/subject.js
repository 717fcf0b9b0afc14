// What RoPE's panels are of: a checkpoint, or a base, a width and a length of one's own; and the scaling chosen.

const CHECKPOINTS = new Map();
const LONGEST_FACTOR = 4096;

function subjectOf(state) {
  const model = CHECKPOINTS.get(state.model);
  const of =
    model && model.kind === "rope"
      ? { ...model, own: model.scaling ?? null }
      : { name: "", base: state.base, width: state.width, layout: "half", trained: state.trained, own: null };
  of.to = Math.min(Math.max(state.to, of.trained), LONGEST_FACTOR * of.trained);
  // A dynamic scaling follows the text.
  if (of.own?.kind === "dynamic") of.own = { ...of.own, length: of.to };
  const every = candidates(of.own, of.trained, of.to, of.reach);
  // Proportional RoPE is trained as it is, and nothing takes its place.
  of.scaling = state.scaling === "own" || of.own?.kind === "proportional" ? of.own : (every[state.scaling] ?? null);
  of.pairs = of.width / 2;
  of.pair = Math.min(state.pair, of.pairs - 1);
  return of;
}

// Each scaling from a length to another; settings of the same kind stay. As ropewalk.checkpoints.inspect has them: none
// for proportional RoPE, of which some pairs do not turn.
function candidates(own, trained, to, reach = 0) {
  if (own?.kind === "proportional") return {};
  const factor = to / trained;
  const found = {
    linear: { kind: "linear", factor },
    ntk: { kind: "ntk", factor },
    dynamic: { kind: "dynamic", factor, trained, length: to },
    yarn: { kind: "yarn", factor, trained },
    llama3: { kind: "llama3", factor, trained },
  };
  if (own?.kind === "yarn") {
    const plain = rotaryGain({ kind: "yarn", factor: own.factor, trained });
    const given = own.attention_factor;
    // A gain that only repeats the formula for the old factor goes with it.
    const repeated = given != null && Math.abs(given - plain) <= 1e-9 * Math.max(given, plain);
    found.yarn = { ...own, factor, trained };
    if (repeated) delete found.yarn.attention_factor;
  }
  if (own?.kind === "llama3") found.llama3 = { ...own, factor, trained };
  if (own?.kind === "longrope" && to <= reach) found.longrope = { ...own, length: to };
  return found;
}

// Frequencies of a setting, computed once: exact, as doubles, and as 64-bit turns.
const KNOWN = new Map();
function numbersOf(scaling, base, width) {
  const name = JSON.stringify([scaling, base, width]);
  if (!KNOWN.has(name)) {
    if (KNOWN.size > 64) KNOWN.clear();
    const omegas = frequencies(scaling, base, width);
    KNOWN.set(name, { doubles: omegas.map(toDouble), turns: omegas.map(turnOf) });
  }
  return KNOWN.get(name);
}

// The scaling whose numbers are shown. YaRN's ramp does not exist for some bases and lengths, as in the library.
function shownNumbers(of) {
  try {
    return { ...numbersOf(of.scaling, of.base, of.width), scaling: of.scaling, refused: "" };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { ...numbersOf(null, of.base, of.width), scaling: null, refused: of.scaling.kind };
  }
}

// Frequencies as the model was trained: before any scaling, but proportional RoPE is trained as it is.
const trainedNumbers = (of) => numbersOf(trainedScaling(of), of.base, of.width);
const trainedScaling = (of) => (of.own?.kind === "proportional" ? of.own : null);
