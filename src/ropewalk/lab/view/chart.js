// Lines in a frame, as SVG of the width that there is, so that its text is never scaled.

const DASHES = { linear: "7 4", ntk: "2 4", dynamic: "10 3 2 3", yarn: "", llama3: "4 3", longrope: "1 5", own: "", exact: "", float32: "6 4" };
const TONES = { linear: "violet", ntk: "green", dynamic: "gold", yarn: "blue", llama3: "orange", longrope: "grey", own: "ink", exact: "blue", float32: "orange" };

function scaleOf(axis, from, to) {
  const at = axis.log ? Math.log : (value) => value;
  const [low, high] = [at(axis.low), at(axis.high)];
  return (value) => from + ((at(Math.min(Math.max(value, axis.low), axis.high)) - low) / (high - low)) * (to - from);
}

// marks: [{ line | dots | shade | level | cursor, ... }]
function chart(holder, { x, y, marks, height = 300, label }) {
  const width = widthOf(holder);
  const box = { left: 52, right: width - 18, top: 12, bottom: height - 42 };
  const [toX, toY] = [scaleOf(x, box.left, box.right), scaleOf(y, box.bottom, box.top)];
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": label });
  const shades = marks.filter((mark) => mark.shade);
  for (const { shade } of shades) {
    const [from, to] = shade.map(toX);
    svg.append(drawn("rect", { class: "shade", x: from, y: box.top, width: Math.max(to - from, 0), height: box.bottom - box.top }));
  }
  for (const [value, text] of x.ticks) {
    svg.append(drawn("line", { class: "grid", x1: toX(value), x2: toX(value), y1: box.top, y2: box.bottom }));
    svg.append(drawn("text", { x: toX(value), y: box.bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const [value, text] of y.ticks) {
    svg.append(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: toY(value), y2: toY(value) }));
    svg.append(drawn("text", { x: box.left - 6, y: toY(value) + 4, "text-anchor": "end" }, text));
  }
  svg.append(drawn("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label));
  for (const mark of marks) svg.append(...markOf(mark, toX, toY, box));
  svg.append(drawn("text", { x: box.left + 5, y: box.top + 12, class: "name" }, y.label));
  holder.replaceChildren(svg);
  return { toX, toY, box, svg };
}

function markOf(mark, toX, toY, box) {
  if (mark.line) {
    const points = mark.line.filter(([, value]) => value > 0 && Number.isFinite(value));
    const path = points.map(([a, b], i) => `${i ? "L" : "M"}${toX(a).toFixed(1)} ${toY(b).toFixed(1)}`).join("");
    return [drawn("path", { d: path, class: `stroke ${mark.tone} ${mark.thick ? "thick" : ""}`, "stroke-dasharray": mark.dashes ?? "" })];
  }
  if (mark.dots) {
    return mark.dots
      .filter(([, value]) => Number.isFinite(value))
      .map(([a, b]) => drawn("circle", { class: `dot ${mark.tone}`, cx: toX(a).toFixed(1), cy: toY(b).toFixed(1), r: mark.size ?? 2.6 }));
  }
  if (mark.level !== undefined) {
    const at = toY(mark.level);
    return [
      drawn("line", { class: "level", x1: box.left, x2: box.right, y1: at, y2: at }),
      drawn("text", { x: box.right - 4, y: at - 6, "text-anchor": "end", class: "name" }, mark.text),
    ];
  }
  if (mark.cursor !== undefined) {
    return [drawn("line", { class: "cursor", x1: toX(mark.cursor), x2: toX(mark.cursor), y1: box.top, y2: box.bottom })];
  }
  if (mark.note) {
    const [a, b, text, anchor] = mark.note;
    return [drawn("text", { x: toX(a), y: toY(b), "text-anchor": anchor, class: "name" }, text)];
  }
  return [];
}

// Names of the lines, under their picture.
function keyOf(items) {
  const piece = ({ tone, dashes, thick, dotted }) =>
    dotted
      ? [4, 14, 24].map((cx) => drawn("circle", { class: `dot ${tone}`, cx, cy: 6, r: 3 }))
      : [drawn("path", { d: "M1 6H27", class: `stroke ${tone} ${thick ? "thick" : ""}`, "stroke-dasharray": dashes ?? "" })];
  const sample = (item) => drawn("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" }, ...piece(item));
  return make("ul", { class: "key" }, ...items.map((item) => make("li", {}, sample(item), item.text)));
}

const powersOfTen = (low, high, most = 8) => {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((to - from + 1) / most));
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, i) => [10 ** (from + i * step), tenTo(from + i * step)]);
};

function wholeTicks(most, width) {
  const room = Math.max(4, Math.floor(width / 60));
  const step = [1, 2, 4, 8, 16, 32, 64, 128].find((size) => most / size <= room) ?? 256;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => [i * step, String(i * step)]);
}
