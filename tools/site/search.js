// Searches the sections of index.js for all words that are typed: those whose heading has them come first, then those whose page has them in its title, then
// those that have them more often.
"use strict";
const query = document.getElementById("query");
const results = document.getElementById("results");
const root = document.body.dataset.root;
const menu = document.querySelector("details.menu");

if (menu && window.matchMedia("(max-width: 50rem)").matches) menu.open = false;

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const found = [];
  for (const section of sections) {
    const title = section.t.toLowerCase(), heading = section.h.toLowerCase(), body = section.w.toLowerCase();
    let score = 0, at = -1;
    for (const word of words) {
      const first = body.indexOf(word);
      if (first < 0 && !title.includes(word)) { score = 0; break; }
      score += (heading.includes(word) ? 1000 : 0) + (title.includes(word) ? 300 : 0) + Math.min(body.split(word).length - 1, 50);
      if (at < 0) at = first;
    }
    if (score) found.push({section, score, at: Math.max(at, 0)});
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 20);
}

function show() {
  results.replaceChildren();
  const found = find(query.value);
  for (const {section, at} of found) {
    const link = document.createElement("a"), excerpt = document.createElement("small");
    link.href = root + "/" + section.p;
    link.textContent = section.h === section.t ? section.t : section.t + ": " + section.h;
    excerpt.textContent = section.w.slice(Math.max(0, at - 60), at + 120);
    link.append(excerpt);
    const item = document.createElement("li");
    item.append(link);
    results.append(item);
  }
  if (!found.length && query.value.trim()) {
    const item = document.createElement("li");
    item.textContent = "No section has all of these words.";
    results.append(item);
  }
  results.hidden = !query.value.trim();
}

query.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { query.value = ""; show(); }
  if (event.key === "/" && document.activeElement !== query) { event.preventDefault(); query.focus(); }
});

// versions.js, beside the folders of a published site, has their names, the newest first. A site alone has none.
if (typeof versions !== "undefined") {
  const select = document.getElementById("versions");
  for (const version of versions) select.add(new Option(version, version, false, location.pathname.includes(`/${version}/`)));
  select.addEventListener("change", () => { location.href = `${root}/../${select.value}/index.html`; });
  select.hidden = false;
}
