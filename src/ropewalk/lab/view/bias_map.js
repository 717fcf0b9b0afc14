function drawBiases(facts, state) {
  const { table, of, query, key, bucketed } = facts;
  const every = table.flat().filter((value) => value !== null);
  const [low, high] = [Math.min(...every), Math.max(...every)];
  const span = high - low || 1;
  // The more is taken away, or the farther off, the paler.
  const paler = bucketed || of.kind === "fire";
  const share = (value) => 0.08 + 0.92 * (paler ? (high - value) / span : (value - low) / span);
  heat("bias-map", table, "rise", share);
  frame("bias-map", query, CELLS, key, CELLS);
  byId("bias-map-axes").textContent = `${word("query")} \u2193 ${word("key")} \u2192`;
  const ends = paler ? [high, low] : [low, high];
  legend("bias-map", "rise", ...ends.map((value) => (bucketed ? `${word("bucket")} ${value}` : brief(value))));
  for (const [field, on] of Object.entries({
    heads: of.kind === "alibi", head: of.kind === "alibi", buckets: bucketed, farthest: bucketed,
    scale: KERPLE.includes(of.kind), rate: KERPLE.includes(of.kind),
  })) {
    for (const control of document.querySelectorAll(`#biases [data-field=${field}]`)) control.hidden = !on;
  }
}
