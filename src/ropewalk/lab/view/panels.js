// Each panel: what it depends on, its facts, its picture. Pictures and numbers follow at once; the sentence, the table and
// the link follow when the reader rests, so that a screen reader is not flooded.

const ROPE = ["model", "base", "width", "trained", "scaling", "to"];
const PANELS = {
  sinusoids: { facts: sinusoidFacts, draw: drawSinusoids, on: ["model", "features", "first", "second", "feature"] },
  clocks: { facts: clockFacts, draw: drawClocks, on: [...ROPE, "position", "pair"] },
  relative: { facts: relativeFacts, draw: drawRelative, on: [...ROPE, "shift", "apart", "product"] },
  wavelengths: { facts: wavelengthFacts, draw: drawWavelengths, on: [...ROPE, "pair"] },
  scalings: { facts: scalingFacts, draw: drawScalings, on: [...ROPE, "pair"] },
  biases: {
    facts: biasFacts, draw: drawBiases,
    on: ["model", "bias", "heads", "head", "query", "key", "window", "buckets", "farthest", "scale", "rate"],
  },
};

function showPanel(name) {
  const panel = PANELS[name];
  panel.now = panel.facts(state);
  panel.draw(panel.now, state);
  showNumbers(name, panel.now.numbers);
}

function showNumbers(name, numbers) {
  const list = byId(`${name}-numbers`);
  if (list.children.length !== numbers.length) {
    list.replaceChildren(...numbers.map((_, i) => {
      const button = make("button", { type: "button", "aria-describedby": `${name}-label-${i}` });
      button.addEventListener("click", () => copyNumber(name, i, button));
      return make("div", {}, make("dt", { id: `${name}-label-${i}` }), make("dd"), make("dd", {}, button));
    }));
  }
  numbers.forEach((number, i) => {
    const [label, value, copy] = list.children[i].children;
    label.textContent = shownText(number.label);
    value.textContent = number.value;
    copy.firstChild.textContent = word("copy");
  });
  const code = byId(`${name}-code`);
  if (!code.hidden) code.textContent = (numbers[code.dataset.number] ?? numbers[0]).python;
}

async function copyNumber(name, i, button) {
  const { python } = PANELS[name].now.numbers[i];
  const code = byId(`${name}-code`);
  code.dataset.number = i;
  code.textContent = python;
  code.hidden = false;
  await copyText(python);
  button.textContent = word("copied");
  announce(word("copied"));
}

function atRest(name) {
  const { sentence } = PANELS[name].now;
  byId(`${name}-said`).textContent = word(...sentence);
  if (byId(`${name}-data`).open) showTable(name);
}

function showTable(name) {
  const { columns, rows } = PANELS[name].now;
  const head = make("tr", {}, ...columns.map((column) => make("th", { scope: "col", class: "number" }, shownText(column))));
  const lines = rows.map((row) => make("tr", {}, ...row.map((cell, i) => (i ? make("td", { class: "number" }, shownText(cell)) : make("th", { scope: "row", class: "number" }, shownText(cell))))));
  const title = byId(`${name}-title`).innerText;
  byId(`${name}-table`).replaceChildren(
    make("caption", {}, word("data_of", { title })), make("thead", {}, head), make("tbody", {}, ...lines),
  );
}

function showSubject() {
  const of = subjectOf(state);
  const text = word("subject", {
    name: of.name || word("own_numbers"), base: brief(of.base), width: of.width, trained: grouped(of.trained),
    kind: word(of.stated ? "stated_kind" : "trained_kind"), scaling: scalingName(of.scaling),
  });
  for (const line of document.querySelectorAll(".subject")) line.textContent = text;
}
