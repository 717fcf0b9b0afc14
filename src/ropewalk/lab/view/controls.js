// Native controls and the state, both ways.

const WAYS = {
  position: { low: 0, high: SLIDER, from: (at) => fromSlider(at, FARTHEST), to: (value) => toSlider(value, FARTHEST) },
  shift: { low: 0, high: SLIDER, from: (at) => fromSlider(at, FARTHEST - 4096), to: (value) => toSlider(value, FARTHEST - 4096) },
  // Eighths of a power of two of the trained length, to 64 times.
  to: {
    low: 0, high: 48,
    from: (at) => Math.round(subjectOf(state).trained * 2 ** (at / 8)),
    to: (value) => Math.round(8 * Math.log2(value / subjectOf(state).trained)),
  },
};
const BY_ONE = ["position", "shift"];

// What a control shows: the checkpoint's own number where it has one.
function current(name) {
  const of = subjectOf(state);
  const bias = biasSubject(state);
  const sinusoids = sinusoidSubject(state);
  const shown = {
    base: of.base, width: of.width, trained: of.trained, to: of.to, pair: of.pair,
    scaling: of.own?.kind === "proportional" ? "own" : state.scaling, features: sinusoids.width, feature: sinusoids.feature,
    bias: bias.kind, heads: bias.heads, head: Math.min(state.head, bias.heads), buckets: bias.buckets ?? state.buckets,
    farthest: bias.farthest ?? state.farthest,
  };
  return Object.hasOwn(shown, name) ? shown[name] : state[name];
}

const most = (name) => {
  if (name === "pair") return subjectOf(state).pairs - 1;
  if (name === "feature") return sinusoidSubject(state).width - 1;
  return name === "head" ? biasSubject(state).heads : FIELDS[name].high;
};

// Fields that a checkpoint fixes: to change one is to leave the checkpoint and keep its other numbers.
const FIXED = {
  rope: ["base", "width", "trained"], sinusoidal: ["features"], alibi: ["bias", "heads"], t5: ["bias", "heads", "buckets", "farthest"],
};

function change(name, value) {
  const kind = CHECKPOINTS.get(state.model)?.kind;
  const fixed = FIXED[kind] ?? [];
  const kept = fixed.includes(name) ? { ...Object.fromEntries(fixed.map((field) => [field, current(field)])), model: "" } : {};
  set({ ...kept, [name]: value });
}

function onInput(input) {
  const name = input.dataset.set;
  const way = input.type === "range" ? WAYS[name] : undefined;
  const value = way ? way.from(Number(input.value)) : FIELDS[name].read(input.value);
  if (value !== undefined) change(name, value);
}

function onKey(input, event) {
  const name = input.dataset.set;
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
  const far = Math.max(10, Math.round(state[name] / 10));
  const step = steps[event.key] ?? { PageUp: far, PageDown: -far }[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  change(name, FIELDS[name].read(String(state[name] + step)));
}

function syncControls(active) {
  for (const input of document.querySelectorAll("[data-set]")) {
    const name = input.dataset.set;
    const value = current(name);
    if (input.type === "radio") input.checked = input.value === value;
    else if (input.tagName === "SELECT") input.value = value;
    else if (input.type === "number") {
      if (input !== document.activeElement) input.value = value;
    } else syncSlider(input, name, value, input === active);
  }
  const options = byId("scaling").options;
  const { own } = subjectOf(state);
  options[0].textContent = word("scaling_own", { name: scalingName(own) });
  for (const option of options) option.disabled = own?.kind === "proportional" && option.value !== "own";
}

function syncSlider(input, name, value, dragged) {
  const way = WAYS[name];
  const text = typeof value === "number" && Number.isInteger(value) ? grouped(value) : brief(value);
  input.min = way ? way.low : FIELDS[name].low;
  input.max = way ? way.high : most(name);
  input.step = { scale: 0.01, rate: 0.01, width: 2, features: 2, buckets: 4 }[name] ?? 1;
  if (!dragged) input.value = way ? way.to(value) : value;
  input.setAttribute("aria-valuetext", text);
  byId(`${input.id}-value`).textContent = text;
}

function fillSelects() {
  const option = (value, text) => make("option", { value }, text);
  const group = (name, kinds) => {
    const rows = [...CHECKPOINTS.values()].filter((one) => kinds.includes(one.kind));
    return make("optgroup", { label: word(name) }, ...rows.map((one) => option(one.name, one.name)));
  };
  byId("model").replaceChildren(
    option("", word("own_numbers")), group("group_rope", ["rope"]), group("group_bias", ["alibi", "t5"]), group("group_sinusoidal", ["sinusoidal"]),
  );
  const scalings = ["linear", "ntk", "dynamic", "yarn", "llama3"].map((name) => option(name, name));
  byId("scaling").replaceChildren(option("own", ""), option("none", word("scaling_none")), ...scalings);
  byId("bias").replaceChildren(...["alibi", "t5", "t5both", "kerple", "kerplepower", "fire"].map((name) => option(name, word(name))));
}

function bindControls() {
  for (const input of document.querySelectorAll("[data-set]")) {
    input.addEventListener(input.type === "number" ? "change" : "input", () => onInput(input));
    if (input.type === "range" && BY_ONE.includes(input.dataset.set)) input.addEventListener("keydown", (event) => onKey(input, event));
  }
  onCell("counter", (row) => set({ first: row }));
  onCell("waves", (row, column) => set({ first: row, feature: column }));
  onCell("products", (row, column) => set({ first: row, second: column }));
  onCell("bias-map", (row, column) => set({ query: row, key: column }), true);
}
