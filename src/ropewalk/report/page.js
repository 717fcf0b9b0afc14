"use strict";
// What every page does: show one language, sort tables, open what a link leads to.
(() => {
  const root = document.documentElement, title = document.querySelector("title");
  const tags = {en: "en", zh: "zh-CN"};
  const kept = (value) => {
    try { return value ? localStorage.setItem("ropewalk-lang", value) : localStorage.getItem("ropewalk-lang"); } catch { return null; }
  };
  const group = document.querySelector(".languages");
  const show = (language) => {
    root.lang = tags[language];
    title.textContent = title.dataset[language] || title.dataset.en;
    for (const button of group.querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.lang === language);
    document.dispatchEvent(new CustomEvent("language", {detail: language}));
  };
  group.hidden = false;
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) { kept(button.dataset.lang); show(button.dataset.lang); }
  });
  const asked = new URLSearchParams(location.search).get("lang") || kept();
  show(asked in tags ? asked : navigator.language.startsWith("zh") ? "zh" : "en");

  const value = (cell) => {
    const text = cell.dataset.value ?? cell.textContent, number = Number(text);
    return text !== "" && Number.isFinite(number) ? number : text;
  };
  const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  for (const table of document.querySelectorAll("table.sorts")) {
    const heads = [...table.tHead.rows[0].cells], first = [...table.tBodies[0].rows];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = {ascending: "descending", descending: null}[head.ariaSort ?? ""];
        const to = next === undefined ? "ascending" : next;
        for (const other of heads) other.removeAttribute("aria-sort");
        let rows = [...first];
        if (to) {
          head.setAttribute("aria-sort", to);
          const sign = to === "ascending" ? 1 : -1;
          rows.sort((a, b) => sign * order(value(a.cells[column]), value(b.cells[column])));
        }
        table.tBodies[0].append(...rows);
      });
    });
  }

  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1)), target = name && document.getElementById(name);
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();
})();
