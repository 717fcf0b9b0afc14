function drawRelative(facts) {
  const [text, same] = facts.digits;
  byId("digits").replaceChildren(text.slice(0, same), ...(same < text.length ? [make("span", {}, text.slice(same))] : []));
  const floor = 1e-16;
  const holder = byId("relative-picture");
  const marks = ["exact", "float32"].map((how) => ({
    line: SHIFTS.map((shift, i) => [shift, Math.max(facts.moved[how][i], floor)]), tone: TONES[how], dashes: DASHES[how],
  }));
  marks.push({ cursor: Math.max(facts.shift, 1) });
  marks.push({ dots: [[Math.max(facts.shift, 1), Math.max(facts.change, floor)]], tone: TONES[facts.product], size: 5 });
  chart(holder, {
    x: { low: 1, high: FARTHEST, log: true, ticks: powersOfTen(1, FARTHEST, widthOf(holder) < 480 ? 5 : 13), label: word("shift_axis") },
    y: { low: floor, high: 30, log: true, ticks: powersOfTen(floor, 30, 9), label: word("change_axis") },
    marks, label: "relative-said",
  });
  holder.append(keyOf(["exact", "float32"].map((how) => ({ tone: TONES[how], dashes: DASHES[how], text: word(`${how}_line`) }))));
  refusedNote("relative", facts.refused);
}

function drawWavelengths(facts) {
  const { of, pair, waves, trainedWaves, unfinished, scaled, scaling } = facts;
  const holder = byId("wavelengths-picture");
  const finite = [...waves, ...trainedWaves].filter(Number.isFinite);
  const high = 3 * Math.max(...finite, of.trained);
  const first = trainedWaves.findIndex((wave) => wave > of.trained && Number.isFinite(wave));
  const marks = [];
  if (unfinished) {
    marks.push({ shade: [first - 0.5, first + unfinished - 0.5] });
    marks.push({ note: [first + unfinished - 0.7, 4, word("unfinished_note", { count: unfinished }), "end"] });
  }
  marks.push({ level: of.trained, text: word(of.stated ? "length_stated" : "length_trained", { length: grouped(of.trained) }) });
  marks.push({ cursor: pair });
  const size = of.pairs > 80 ? 1.8 : 2.8;
  if (scaled) marks.push({ dots: waves.map((wave, i) => [i, wave]), tone: "orange", size: size + 0.4 });
  marks.push({ dots: trainedWaves.map((wave, i) => [i, wave]), tone: "blue", size });
  chart(holder, {
    x: { low: -0.5, high: of.pairs - 0.5, ticks: wholeTicks(of.pairs - 1, widthOf(holder)), label: word("pair_axis") },
    y: { low: 3, high, log: true, ticks: powersOfTen(3, high), label: word("wave_axis") },
    marks, label: "wavelengths-said",
  });
  const key = [{ tone: "blue", dotted: true, text: word("trained_line") }];
  if (scaled) key.push({ tone: "orange", dotted: true, text: word("scaled_line", { name: scalingName(scaling) }) });
  holder.append(keyOf(key));
  refusedNote("wavelengths", facts.refused);
}

function drawScalings(facts) {
  const { of, pair, slower, gains, scalings } = facts;
  const holder = byId("scalings-picture");
  const highest = Math.max(2, ...Object.values(slower).flat().filter(Number.isFinite));
  const ticks = Array.from({ length: Math.floor(Math.log2(highest * 1.15)) + 1 }, (_, i) => [2 ** i, `${2 ** i}\u00d7`]);
  const names = Object.keys(slower).sort((a, b) => (a === "own" ? -1 : b === "own" ? 1 : 0));
  const marks = names.map((name) => ({
    line: slower[name].map((value, i) => [i, value]), tone: TONES[name], dashes: DASHES[name], thick: name === "own",
  }));
  marks.push({ cursor: pair });
  chart(holder, {
    x: { low: 0, high: of.pairs - 1, ticks: wholeTicks(of.pairs - 1, widthOf(holder)), label: word("pair_axis") },
    y: { low: 0.9, high: highest * 1.3, log: true, ticks: ticks.filter((_, i) => ticks.length < 9 || i % 2 === 0), label: word("slower_axis") },
    marks, label: "scalings-said",
  });
  holder.append(keyOf(names.map((name) => {
    const title = name === "own" ? word("own_line", { name: scalingName(scalings.own) }) : name;
    const text = gains[name] === 1 ? title : word("gain_line", { name: title, gain: brief(gains[name]) });
    return { tone: TONES[name], dashes: DASHES[name], thick: name === "own", text };
  })));
  refusedNote("scalings", facts.refused.join(", "));
}

function scalingName(scaling) {
  if (!scaling) return word("none");
  const factor = scaling.factor ?? (scaling.extended ? scaling.extended / scaling.trained : undefined);
  return factor === undefined || factor === 1 ? scaling.kind : `${scaling.kind} \u00d7${brief(factor)}`;
}

function refusedNote(panel, name) {
  const note = byId(`${panel}-note`);
  note.hidden = !name;
  note.textContent = name ? word("refused", { name }) : "";
}
