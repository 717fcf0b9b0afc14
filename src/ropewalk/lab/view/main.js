// The state, and what follows from a change of it.

let state = start();
let undrawn = new Set();
let unsaid = new Set();
let drawing = 0;
let resting = 0;
let playing = 0;

function set(changes) {
  const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  if (!changed.length) return;
  state = { ...state, ...changes };
  for (const [name, panel] of Object.entries(PANELS)) if (panel.on.some((field) => changed.includes(field))) undrawn.add(name);
  drawing ||= requestAnimationFrame(draw);
}

function draw() {
  drawing = 0;
  const panels = [...undrawn].filter((name) => onScreen(byId(name)));
  syncControls(document.activeElement?.matches(":active") ? document.activeElement : null);
  showSubject();
  panels.forEach(update);
  clearTimeout(resting);
  resting = setTimeout(rest, 250);
}

const onScreen = (section) => {
  const { top, bottom } = section.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
};

function update(name) {
  undrawn.delete(name);
  showPanel(name);
  unsaid.add(name);
}

// What is out of sight waits until here, so that what is in sight follows a slider at once.
function rest() {
  [...undrawn].forEach(update);
  for (const name of unsaid) atRest(name);
  unsaid = new Set();
  // A link within the page is left alone until something was changed.
  const link = toLink(state);
  if (link !== location.hash.slice(1) && (link || location.hash.includes("="))) history.replaceState(null, "", `#${link}`);
}

function all() {
  MEASURED.clear();
  document.querySelectorAll(".picture").forEach(widthOf);
  undrawn = new Set(Object.keys(PANELS));
  draw();
}

function restore() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return;
  state = fromLink(text);
  all();
}

function play(on) {
  const button = byId("play");
  button.setAttribute("aria-pressed", on);
  button.textContent = word(on ? "pause" : "play");
  clearInterval(playing);
  const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 60;
  playing = on ? setInterval(() => set({ position: (state.position + 1) % (FARTHEST + 1) }), pace) : 0;
}

function begin() {
  Object.assign(WORDS, JSON.parse(byId("words").textContent));
  for (const one of JSON.parse(byId("checkpoints").textContent)) CHECKPOINTS.set(one.name, one);
  bindControls();
  for (const name of Object.keys(PANELS)) byId(`${name}-data`).addEventListener("toggle", () => atRest(name));
  byId("play").addEventListener("click", () => play(!playing));
  byId("reset").addEventListener("click", () => {
    state = start();
    all();
  });
  byId("share").addEventListener("click", async () => {
    rest();
    await copyText(location.href);
    announce(word("copied_link"));
    byId("share").textContent = word("copied_link");
  });
  document.addEventListener("language", inLanguage);
  addEventListener("hashchange", restore);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    SHADES.clear();
    all();
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) all();
    width = innerWidth;
  });
  state = fromLink(location.hash.slice(1));
  inLanguage();
  rest();
}

function inLanguage() {
  fillSelects();
  byId("share").textContent = word("share_link");
  play(false);
  all();
}

begin();
