// Numbers as text, for readers and for Python.

const grouped = (value) => (typeof value === "bigint" ? value : BigInt(Math.round(value))).toLocaleString("en-US");

// Of any size, for axes and sentences: 8,192 or 0.25 or 1.3e+12.
function brief(value) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "-\u221e";
  if (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-3) return value.toPrecision(3).replace(/\.?0+e/, "e");
  if (Math.abs(value) >= 1000) return grouped(value);
  return String(Number(value.toPrecision(4)));
}

// Exactly what Python's f"{value:.Nf}" prints.
function fixed(value, places) {
  if (value === Infinity) return "inf";
  const said = (value + 0).toFixed(places);
  // Halfway between two, toFixed takes the one farther from 0 and Python the even one.
  const more = (value + 0).toFixed(places + 30);
  const halfway = more.endsWith(`5${"0".repeat(29)}`);
  return halfway && Number(said.at(-1)) % 2 ? more.slice(0, -30).replace(/\.$/, "") : said;
}

function inPython(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value);
  return Array.isArray(value) ? `[${value.map(inPython).join(", ")}]` : String(value);
}

const CLASSES = {
  linear: "Linear",
  ntk: "NTK",
  dynamic: "Dynamic",
  yarn: "YaRN",
  llama3: "Llama3",
  longrope: "LongRoPE",
  proportional: "Proportional",
};

function scalingInPython(scaling) {
  const fields = Object.entries(scaling).filter(([name, value]) => name !== "kind" && value != null);
  return `${CLASSES[scaling.kind]}(${fields.map(([name, value]) => `${name}=${inPython(value)}`).join(", ")})`;
}

// Lines that leave the exact frequencies in `omega`.
function frequenciesInPython(scaling, base, width, more = []) {
  const names = [scaling ? CLASSES[scaling.kind] : "ladder", ...more].sort();
  const made = scaling ? `${scalingInPython(scaling)}.frequencies` : "ladder";
  return [`from ropewalk.scaling import ${names.join(", ")}`, "", `omega = ${made}(${inPython(base)}, ${width})`];
}
