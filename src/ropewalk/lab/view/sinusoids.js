function drawSinusoids(facts, state) {
  const { table, products, width, feature } = facts;
  const bits = table.map((_, t) => Array.from({ length: BITS }, (_, bit) => (t >> bit) & 1));
  heat("counter", bits, "rise", (bit) => 0.75 * bit);
  heat("waves", table, "wave", (value) => (value + 1) / 2);
  heat("products", products, "wave", (value) => (value / (width / 2) + 1) / 2);
  frame("counter", state.first, ROWS, null, BITS);
  frame("waves", state.first, ROWS, feature, width);
  frame("products", state.first, ROWS, state.second, ROWS);
  byId("counter-axes").textContent = `${word("position")} \u2193 ${word("bit_axis")} \u2192`;
  byId("waves-axes").textContent = `${word("position")} \u2193 ${word("feature_axis")} \u2192`;
  byId("products-axes").textContent = `${word("position")} t \u2193 ${word("position")} s \u2192`;
  legend("counter", "rise", "0", "1");
  legend("waves", "wave", "\u22121", "1");
  legend("products", "wave", brief(-width / 2), brief(width / 2));
}
