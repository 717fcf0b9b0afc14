const MOST_CLOCKS = 64;

function clocksShown(pairs, chosen) {
  const step = Math.ceil(pairs / MOST_CLOCKS);
  const found = Array.from({ length: Math.ceil(pairs / step) }, (_, i) => i * step);
  const near = Math.floor(chosen / step);
  found[near] = chosen;
  return found;
}

function drawClocks(facts) {
  const holder = byId("clocks-picture");
  const width = widthOf(holder);
  const shown = clocksShown(facts.angles.length, facts.pair);
  // As many in a row as have room, whole rows where that can be.
  const most = Math.max(6, Math.min(16, Math.floor(width / 43), shown.length));
  const across = [0, 1, 2, 3, 4].map((less) => most - less).find((count) => count > 0 && shown.length % count === 0) ?? most;
  const room = Math.min(width / across, 76);
  const radius = room / 2 - 5;
  const rows = Math.ceil(shown.length / across);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${rows * (room + 15)}`, role: "img", "aria-labelledby": "clocks-said" });
  shown.forEach((pair, place) => {
    const [x, y] = [(place % across) * room + room / 2, Math.floor(place / across) * (room + 15) + room / 2];
    const classes = ["clock", facts.within[pair] ? "" : "unseen", pair === facts.pair ? "chosen" : ""].join(" ");
    const tip = (angle, length) => [x + length * Math.sin(angle), y - length * Math.cos(angle)].map((at) => at.toFixed(1));
    const [hand, end] = [tip(facts.angles[pair], radius - 2), tip(facts.seen[pair], radius)];
    const all = facts.seen[pair] >= 2 * Math.PI - 1e-9;
    const sector = all
      ? drawn("circle", { class: "sector", cx: x, cy: y, r: radius })
      : drawn("path", { class: "sector", d: `M${x} ${y}L${x} ${y - radius}A${radius} ${radius} 0 ${facts.seen[pair] > Math.PI ? 1 : 0} 1 ${end.join(" ")}Z` });
    const parts = [
      sector,
      drawn("circle", { class: "face", cx: x, cy: y, r: radius }),
      drawn("line", { class: "hand", x1: x, y1: y, x2: hand[0], y2: hand[1] }),
      drawn("text", { x, y: y + radius + 13 }, String(pair)),
    ];
    const clock = drawn("g", { class: classes }, ...parts);
    clock.addEventListener("click", () => set({ pair }));
    svg.append(clock);
  });
  holder.replaceChildren(svg);
  const note = byId("clocks-note");
  const some = shown.length < facts.angles.length;
  note.hidden = !some && !facts.refused;
  note.textContent = facts.refused ? word("refused", { name: facts.refused }) : word("clocks_some", { shown: shown.length, pairs: facts.angles.length });
}
