// Searches the pages of index.js for all words that are typed: pages whose title has them come first, then those that have them more often.
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
  for (const page of pages) {
    const title = page.t.toLowerCase(), body = page.w.toLowerCase();
    let score = 0, at = -1;
    for (const word of words) {
      const first = body.indexOf(word);
      if (first < 0 && !title.includes(word)) { score = 0; break; }
      score += (title.includes(word) ? 1000 : 0) + Math.min(body.split(word).length - 1, 50);
      if (at < 0) at = first;
    }
    if (score) found.push({page, score, at: Math.max(at, 0)});
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 20);
}

function show() {
  results.replaceChildren();
  const found = find(query.value);
  for (const {page, at} of found) {
    const link = document.createElement("a"), excerpt = document.createElement("small");
    link.href = root + "/" + page.p;
    link.textContent = page.t;
    excerpt.textContent = page.w.slice(Math.max(0, at - 60), at + 120);
    link.append(excerpt);
    const item = document.createElement("li");
    item.append(link);
    results.append(item);
  }
  if (!found.length && query.value.trim()) {
    const item = document.createElement("li");
    item.textContent = "No page has all of these words.";
    results.append(item);
  }
  results.hidden = !query.value.trim();
}

query.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { query.value = ""; show(); }
  if (event.key === "/" && document.activeElement !== query) { event.preventDefault(); query.focus(); }
});
