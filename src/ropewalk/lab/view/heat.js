// Heat maps: a canvas of one dot for each cell, which the style sheet makes large.

// 256 colours of a scale, from the three that the style sheet has; read again when the page turns light or dark.
const SHADES = new Map();
function shades(name) {
  if (!SHADES.has(name)) {
    const style = getComputedStyle(document.documentElement);
    const scale = [0, 1, 2].map((i) => {
      const colour = style.getPropertyValue(`--${name}-${i}`).trim();
      return [1, 3, 5].map((from) => parseInt(colour.slice(from, from + 2), 16));
    });
    SHADES.set(name, Array.from({ length: 256 }, (_, i) => {
      const [from, to, part] = i < 128 ? [scale[0], scale[1], i / 127.5] : [scale[1], scale[2], i / 127.5 - 1];
      return from.map((value, k) => Math.round(value + (to[k] - value) * part));
    }));
  }
  return SHADES.get(name);
}

// share(value) in [0, 1]; a cell without a value is left empty.
function heat(name, table, scaleName, share) {
  const canvas = byId(name);
  const [rows, columns] = [table.length, table[0].length];
  const scale = shades(scaleName);
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  table.forEach((row, i) => row.forEach((value, j) => {
    if (value === null) return;
    const at = 4 * (i * columns + j);
    image.data.set(scale[Math.round(255 * Math.min(Math.max(share(value), 0), 1))], at);
    image.data[at + 3] = 255;
  }));
  context.putImageData(image, 0, 0);
}

// Frames the row and the column that are chosen; null for none.
function frame(name, row, rows, column, columns) {
  const [across, down] = byId(name).parentElement.querySelectorAll(".mark");
  const place = (mark, at, of, [start, size], [far, whole]) => {
    mark.hidden = at === null;
    if (at === null) return;
    mark.style[start] = `${(100 * at) / of}%`;
    mark.style[size] = `${100 / of}%`;
    mark.style[far] = "0";
    mark.style[whole] = "100%";
  };
  place(across, row, rows, ["top", "height"], ["left", "width"]);
  place(down, column, columns, ["left", "width"], ["top", "height"]);
}

function legend(name, scaleName, low, high) {
  byId(`${name}-scale`).replaceChildren(make("span", {}, low), make("i", { class: scaleName }), make("span", {}, high));
}

// Calls with the cell under the pointer: at a press, and while a mouse moves over it where `hover` is set.
function onCell(name, found, hover) {
  const canvas = byId(name);
  const tell = (event) => {
    const place = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height];
    if (x >= 0 && x < 1 && y >= 0 && y < 1) found(Math.floor(y * canvas.height), Math.floor(x * canvas.width));
  };
  canvas.addEventListener("pointerdown", tell);
  canvas.addEventListener("pointermove", (event) => { if (event.buttons || (hover && event.pointerType === "mouse")) tell(event); });
}
