// Elements of the page, and its words in the language of the moment.

const byId = (id) => document.getElementById(id);
const WORDS = {};

const language = () => (document.documentElement.lang.startsWith("zh") ? "zh" : "en");

function word(key, values = {}) {
  return WORDS[key][language()].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// A cell or a label is text, or a word with what it fills in.
const shownText = (content) => (Array.isArray(content) ? word(...content) : content);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from disk may not have the clipboard in every browser.
    const area = make("textarea", { class: "aside" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const announce = (text) => {
  byId("status").textContent = text;
};

const RAISED = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074", 5: "\u2075", 6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079" };
const tenTo = (power) => `10${[...String(power)].map((sign) => RAISED[sign]).join("")}`;

// Widths of what pictures are drawn in, measured once for each width of the window: to ask between changes of the page
// is to lay it out again each time.
const MEASURED = new Map();
function widthOf(holder) {
  if (!MEASURED.has(holder)) MEASURED.set(holder, Math.max(holder.clientWidth, 240));
  return MEASURED.get(holder);
}
