// Draws the table of all members.
import { bad, bytes, el, key, moving, nameOf, percent, section, short, table, when, whole } from "./parts.js";
import { claimColumns } from "./learning.js";
import { everyone } from "./people.js";
import { auditColumns, claimedColumns, standing } from "./trust.js";

// members draws the table of all members. view is the reader's choice of rows and their order; changed redraws the page, and
// say announces a message.
export function members(data, view, changed, say) {
  const h = data.history, s = data.status;
  if (!s) return null;
  const said = new Map((data.reported ? data.reported.members : []).map((m) => [m.id, m]));
  const every = everyone(data), present = new Map(s.members.map((m) => [m.id, m])), offers = (m) => present.get(m.id) || {};
  let rows = every;
  const fallen = ["dropped", "ejected"].map((name) => [name, rows.filter((m) => m.standing === name).length]).filter(([, n]) => n);
  const total = rows.length, all = Math.max(1, h ? h.tokens : 0), probation = rows.some((m) => m.probation);
  if (view.find) rows = rows.filter((m) => m.id.toLowerCase().includes(view.find) || nameOf(m.id).toLowerCase().includes(view.find) || m.standing.includes(view.find));
  let columns = [
    { name: "Member", left: true, value: (m) => m.id, show: (m) => key(m.id) },
    { name: "Standing", left: true, value: (m) => m.standing, show: (m) => standing(m, s.epoch) },
    ...claimColumns(data),
    ...(s.config.shares_by_speed ? [
      { name: "Offers", help: "tokens per second at which it offers to train, as it claims; it determines its batch", value: (m) => offers(m).offers_tokens_per_second || 0, show: (m) => offers(m).offers_tokens_per_second ? short(offers(m).offers_tokens_per_second) : "–" },
      { name: "Batch", help: "its sequences in the newest round", value: (m) => offers(m).sequences || 0, show: (m) => offers(m).sequences ? whole(offers(m).sequences) : "–" }] : []),
    { name: "Counted", help: "rounds in which its result counted (as in its receipt), out of the rounds in which it had a batch", value: (m) => m.counted, show: (m) => `${whole(m.counted)} of ${whole(m.assigned)}` },
    { name: "Share", help: "its share of the tokens of all results that counted (as in its receipt)", value: (m) => m.tokens, show: (m) => el("span", { class: "whole" }, percent(m.tokens / all)) },
    ...(probation ? [{ name: "On probation", help: "rounds in which witnesses held its result, but the result could not count yet: the member was new, or its optimizer warmed up", value: (m) => m.probation, show: (m) => whole(m.probation) }] : []),
    { name: "Lost", rare: true, help: "rounds in which no quorum of witnesses held its result", value: (m) => m.lost, show: (m) => whole(m.lost) },
    { name: "Witnessed", help: "rounds in which its proof was accepted, out of the rounds for which it was elected as a witness", value: (m) => m.witnessed, show: (m) => `${whole(m.witnessed)} of ${whole(m.elected)}` },
    { name: "Late", rare: true, help: "times that it was found late or slow", value: (m) => m.late + m.slow, show: (m) => whole(m.late + m.slow) },
    { name: "Reported late", rare: true, help: "accepted reports that witnesses lack its result; lateness is not cheating", value: (m) => m.accused, show: (m) => whole(m.accused) },
    { name: "Accuses", rare: true, help: "accepted reports and accusations that it made", value: (m) => m.accuses, show: (m) => whole(m.accuses) },
    ...auditColumns(data),
    { name: "Dropped", rare: true, value: (m) => m.dropped, show: (m) => whole(m.dropped) },
    { name: "Ejected", rare: true, value: (m) => m.ejected, show: (m) => bad(m.ejected) },
    { name: "Other model", rare: true, help: "reported a model that differs from the recorded model", value: (m) => m.disagreed, show: (m) => whole(m.disagreed) },
    { name: "Left", rare: true, help: "times that it withdrew, or lost its connection", value: (m) => m.left, show: (m) => whole(m.left) },
    { name: "Since", help: "when its first action was accepted", value: (m) => m.first || 0, show: (m) => el("span", { class: "whole" }, m.first ? when(m.first).slice(0, 16) : m.last ? "the start" : "–") },
    { name: "Last seen", value: (m) => m.last, show: (m) => el("span", { class: "whole" }, m.last ? when(m.last).slice(5) : "–") },
  ];
  columns = columns.filter((c) => !c.rare || every.some(c.value));
  if (said.size) {
    const of = (m) => said.get(m.id) || {};
    columns.push(
      { name: "Loss*", host: true, value: (m) => of(m).loss ?? -1, show: (m) => of(m).loss >= 0 ? short(of(m).loss, 4) : "–" },
      { name: "Tokens/s*", host: true, value: (m) => of(m).speed || 0, show: (m) => of(m).speed ? short(of(m).speed) : "–" },
      { name: "Sent*", host: true, value: (m) => of(m).sent || 0, show: (m) => of(m).sent ? bytes(of(m).sent) : "–" },
      { name: "Received*", host: true, value: (m) => of(m).received || 0, show: (m) => of(m).received ? bytes(of(m).received) : "–" },
      ...claimedColumns(data, of),
      { name: "Memory*", host: true, value: (m) => of(m).memory || 0, show: (m) => of(m).memory ? bytes(of(m).memory) : "–" });
    const moves = (m) => [of(m).arrives, of(m).uploads].filter(Boolean);
    if (rows.some((m) => moves(m).length)) columns.splice(2, 0, { name: "Moving*", host: true, help: "its current downloads and uploads", left: true, value: (m) => moves(m).length, show: (m) => moves(m).length ? moves(m).map(moving) : "–" });
  }
  const limit = view.all ? rows.length : 50;
  const sort = (name) => { view.sort = { name, down: view.sort.name === name ? !view.sort.down : true }; changed(); say(`Sorted by ${name}, ${view.sort.down ? "descending" : "ascending"}`); };
  const by = columns.find((c) => c.name === view.sort.name) || columns[0];
  const shown = [...rows].sort((a, b) => { const x = by.value(a), y = by.value(b); return (x < y ? -1 : x > y ? 1 : 0) * (view.sort.down ? -1 : 1); }).slice(0, limit);
  return section("Members",
    el("div", { class: "controls" },
      el("label", { for: "find" }, "Find a key, a name or a status", el("input", { id: "find", type: "search", value: view.find, oninput: (e) => { view.find = e.target.value.toLowerCase(); changed(); } })),
      rows.length > 50 ? el("button", { type: "button", id: "all-members", onclick: () => { view.all = !view.all; changed(); } }, view.all ? "Show 50" : `Show all ${rows.length}`) : null,
      fallen.map(([name, n]) => el("button", { type: "button", id: "find-" + name, class: name === "ejected" ? "bad" : null, "aria-pressed": String(view.find === name), onclick: () => { view.find = view.find === name ? "" : name; changed(); } }, `${whole(n)} ${name}`)),
      el("span", { class: "muted" }, `${whole(total)} keys that took part`)),
    el("div", { class: "scroll", id: "s-members", tabindex: 0, role: "region", "aria-label": "Members, table" }, table("Members and their status", columns, shown, view.sort, sort)),
    el("p", { class: "muted" }, "Counts that are 0 for all members have no column."),
    said.size ? el("p", { class: "muted host" }, "* from the member's event log, as the host reports it; unsigned.") : null,
    total && rows.some((m) => nameOf(m.id)) ? el("p", { class: "muted" }, "A name in italics is the name that a member chose and signed when it joined. It proves nothing: another member may use the same name. Only the key identifies a member.") : null,
    claimColumns(data).length ? el("p", { class: "muted" }, "† a claim in the proofs that the member signs as a witness; not checked.") : null,
    h && s.config.verification_percent === 0 ? el("p", { class: "muted" }, "Audits: none in this run; whether a result was computed from its batch is not checked.") : null);
}
