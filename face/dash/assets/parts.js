// Small parts of the page. All text is inserted as text, never as HTML.

// el creates an element. It omits attributes that are null.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  return fill(node, attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

// section returns a part of the page with a heading.
export function section(title, ...children) {
  const id = "h-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), ...children);
}

// tile returns a value with its name.
export function tile(name, value, help, more, style) { return el("div", { class: style }, el("dt", { title: help }, name), el("dd", {}, value, more ? el("small", {}, more) : null)); }

const units = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

// short formats a number with few digits.
export function short(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [unit, size] of units) {
    if (Math.abs(value) >= size * 0.9995) return trim(value / size, digits) + " " + unit;
  }
  return trim(value, digits);
}

function trim(value, digits) {
  if (value === 0) return "0";
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 6)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

export const sum = (list, of = (value) => value) => list.reduce((total, value) => total + of(value), 0);

export function whole(value) { return value.toLocaleString("en-GB"); }

// bad formats a number that should be 0.
export const bad = (n) => n ? el("strong", { class: "bad" }, whole(n)) : "0";

const transfers = { model: "model of", results: "results up to", download: "downloading", upload: "uploading" };

// moving formats the progress of a member's download or upload.
export function moving(t) {
  const text = `${transfers[t.what]} step ${whole(t.step)}: ${bytes(t.bytes)} of ${bytes(t.total)}`;
  return el("span", { class: "moving" }, text, el("progress", { max: t.total, value: t.bytes, "aria-label": text }));
}

export function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return trim(value / size, 3) + " " + unit;
  }
  return value + " B";
}

export function percent(share) { return Number.isFinite(share) ? (100 * share).toFixed(1) + " %" : "–"; }

// span formats a time in milliseconds for people.
export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 90) return Math.round(s) + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return (s / 3600).toFixed(1) + " h";
  return (s / 86400).toFixed(1) + " days";
}

// counted formats a number of things.
export const counted = (n, one, many = one + "s") => `${whole(n)} ${n === 1 ? one : many}`;

// ago formats a time in milliseconds in words.
export function ago(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 90) return counted(Math.round(s), "second");
  if (s < 5400) return counted(Math.round(s / 60), "minute");
  if (s < 129600) return counted(Number((s / 3600).toFixed(1)), "hour");
  return counted(Math.round(s / 86400), "day");
}

// clock formats a time in Unix milliseconds for people: without the date if it is on the day of now, and without the
// year if it is in the year of now.
export function clock(ms, now) {
  const at = new Date(ms), today = new Date(now), time = { hour: "2-digit", minute: "2-digit" };
  if (at.toDateString() === today.toDateString()) return at.toLocaleTimeString("en-GB", time);
  return at.toLocaleString("en-GB", { day: "numeric", month: "short", ...(at.getFullYear() === today.getFullYear() ? {} : { year: "numeric" }), ...time });
}

// jump scrolls to a part of the page, opens the fold around it and gives it the focus.
export function jump(id) {
  const to = document.getElementById(id);
  if (!to) return;
  for (let fold = to.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const part = to.closest("section") || to;
  if (!part.hasAttribute("tabindex")) part.setAttribute("tabindex", "-1");
  part.scrollIntoView();
  part.focus({ preventScroll: true });
}

// when formats a time in Unix milliseconds.
export function when(ms) {
  if (!ms) return "–";
  const at = new Date(ms), two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// download lets the reader save a file.
export function download(blob, name) {
  const url = URL.createObjectURL(blob), link = el("a", { href: url, download: name.replace(/[^A-Za-z0-9._-]+/g, "_") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// part formats progress as text.
export const part = (done, all) => all > 0 ? Math.floor(100 * Math.min(1, done / all)) + " %" : "0 %";

let names = {};

// call sets the names that members claim, by their keys.
export function call(given) { names = given || {}; }

// nameOf returns the name that the member with a key claims.
export const nameOf = (id) => Object.hasOwn(names, id) ? names[id] : "";

// key draws a shortened key with the whole key in its title, followed by the name that its owner
// claims. Other members may claim the same name, so the name never stands alone, and its text
// direction is isolated.
export function key(id) {
  if (!id) return "";
  const name = nameOf(id), short = el("span", { class: "key", title: id }, id.slice(0, 8) + "…");
  return name ? el("span", { class: "claims" }, short, " ", el("bdi", { class: "claim", title: id + " calls itself so" }, name)) : short;
}

// sol formats lamports as SOL.
export function sol(lamports) { return trim(lamports / 1e9, 6) + " SOL"; }

// table creates a table with sortable columns {name, value(row), show(row), left, host}. Columns
// with host contain data that the host reports.
const style = (c) => [c.left && "left", c.host && "host"].filter(Boolean).join(" ") || null;

export function table(caption, columns, rows, sorted, onsort) {
  if (sorted) {
    const by = columns.find((c) => c.name === sorted.name) || columns[0];
    rows = [...rows].sort((a, b) => {
      const x = by.value(a), y = by.value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (sorted.down ? -1 : 1);
    });
  }
  const heads = columns.map((c) => {
    const active = sorted && sorted.name === c.name;
    const text = onsort ? el("button", { type: "button", "data-sort": c.name, onclick: () => onsort(c.name) }, c.name) : c.name;
    return el("th", { scope: "col", class: style(c), title: c.help, "aria-sort": active ? (sorted.down ? "descending" : "ascending") : null }, text);
  });
  return el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads)),
    el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c, i) =>
      el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: style(c) }, c.show ? c.show(row) : String(c.value(row))))))));
}
