"use strict";
// Search in the book. The first query loads search-index.js, which sets window.bookSections: a list of
// {page, href, id, heading, text}.

const maxResults = 20;

/**
 * Returns the sections that contain all words of a query, best first. A word matches the beginning of
 * a word. Matches in a heading or a page's title count more than matches in the text.
 */
function search(sections, query) {
  const words = query.toLowerCase().match(/[\p{L}\p{N}_-]+/gu) || [];
  if (!words.length) return [];
  const found = [];
  for (const section of sections) {
    const page = section.page.toLowerCase(), heading = section.heading.toLowerCase(), text = section.text.toLowerCase();
    let score = 0;
    for (const word of words) {
      const begins = new RegExp("(?<![\\p{L}\\p{N}])" + word, "gu");
      const count = (text.match(begins) || []).length;
      const value = 20 * (heading.match(begins) || []).length + 8 * (page.match(begins) || []).length + Math.min(count, 5);
      if (!value) { score = 0; break; }
      score += value;
    }
    if (score) found.push({ section, score });
  }
  found.sort((a, b) => b.score - a.score);
  return found.slice(0, maxResults).map((f) => f.section);
}

/** Returns about 160 characters of a text around the query's first word. */
function excerpt(text, query) {
  const word = (query.toLowerCase().match(/[\p{L}\p{N}_-]+/u) || [""])[0];
  const at = Math.max(0, text.toLowerCase().indexOf(word));
  const from = at > 60 ? text.indexOf(" ", at - 60) + 1 : 0;
  return (from ? "…" : "") + text.slice(from, at + 100).trim() + (at + 100 < text.length ? "…" : "");
}

function show(list, query, folder) {
  const region = document.getElementById("found");
  region.replaceChildren();
  region.hidden = query.trim() === "";
  if (region.hidden) return;
  if (!list.length) {
    region.append("No section contains all of these words.");
    return;
  }
  const results = document.createElement("ol");
  for (const section of list) {
    const item = document.createElement("li"), link = document.createElement("a"), text = document.createElement("p");
    link.href = new URL(section.href + (section.id ? "#" + section.id : ""), folder).href;
    link.textContent = section.heading === section.page ? section.page : section.page + ": " + section.heading;
    text.textContent = excerpt(section.text, query);
    item.append(link, text);
    results.append(item);
  }
  region.append(results);
}

function start(script) {
  const form = document.querySelector(".search"), input = document.getElementById("query");
  const address = new URL("search-index.js", script.src);
  let loading;
  const load = () => loading ||= new Promise((resolve, reject) => {
    const index = document.createElement("script");
    index.src = address.href;
    index.onload = resolve;
    index.onerror = () => { loading = undefined; reject(new Error("the search index is missing: build the site again")); };
    document.head.append(index);
  });
  form.hidden = false;
  input.addEventListener("input", async () => {
    try {
      await load();
      show(search(window.bookSections, input.value), input.value, address);
    } catch (problem) {
      const region = document.getElementById("found");
      region.textContent = problem.message;
      region.hidden = false;
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    document.querySelector("#found a")?.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(input|textarea|select)$/i.test(event.target.tagName)) {
      event.preventDefault();
      input.focus();
    }
    if (event.key === "Escape" && event.target === input) {
      input.value = "";
      show([], "", address);
    }
  });
}

if (typeof document !== "undefined") start(document.currentScript);
if (typeof module !== "undefined") module.exports = { search, excerpt };
