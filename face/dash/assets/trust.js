// Draws the status of members, their trials, and their own counts of audits.
import { el, key, section, sum, table, when, whole } from "./parts.js";

const tone = { member: "good", late: "warn", slow: "warn", dropped: "warn", ejected: "bad" };

// standing draws the status of a member, the entry that set it, and the reason.
export function standing(m, epoch) {
  const until = !m.until ? "" : m.until > epoch ? `, until epoch ${m.until}` : `; since epoch ${m.until} it may join again`;
  return el("span", { class: m.why ? "why" : null }, el("span", { class: tone[m.standing] || "muted" }, m.standing),
    m.why ? el("span", { class: "muted" }, `: ${m.why}${until} (entry ${m.entry})`) : null);
}

// audited reports whether the run has audits or trials.
function audited(data) {
  const h = data.history;
  return data.status.config.verification_percent > 0 || h && h.members.some((m) => m.tried);
}

// auditColumns are the columns about audits in the members' table.
export function auditColumns(data) {
  if (!data.history || !audited(data)) return [];
  return [
    { name: "Tried", help: "times that a jury voted on it", value: (m) => m.tried || 0, show: (m) => whole(m.tried || 0) },
    { name: "Votes", help: "votes that it gave as a juror", value: (m) => m.voted || 0, show: (m) => whole(m.voted || 0) },
  ];
}

// claimedColumns are the columns with the members' own counts of audits.
export function claimedColumns(data, of) {
  if (!audited(data)) return [];
  const all = (m) => sum(Object.values(of(m).audits || {}));
  return [{ name: "Audits*", host: true, help: "its own count of its audits, by outcome", left: true, value: all,
    show: (m) => all(m) ? Object.entries(of(m).audits).sort().map(([outcome, n]) => `${whole(n)} ${outcome}`).join(", ") : "–" }];
}


const votes = (t) => t.jury ? `${t.guilty} guilty, ${t.innocent} innocent, of ${t.jury}` : "the jury is not drawn yet";

const people = [
  { name: "Accused", left: true, value: (t) => t.accused, show: (t) => key(t.accused) },
  { name: "Accuser", left: true, value: (t) => t.accuser, show: (t) => key(t.accuser) },
  { name: "Of", left: true, help: "the fault", value: (t) => t.fault },
  { name: "Step", help: "of the result", value: (t) => t.step, show: (t) => whole(t.step) },
  { name: "Votes", left: true, value: votes },
];

// trials draws the open trials and the finished trials. It returns null if there are none.
export function trials(data) {
  const s = data.status, h = data.history;
  if (!s || !audited(data)) return null;
  const open = h ? h.open_trials : s.trials, past = h ? h.past_trials : [];
  if (!open.length && !past.length) return null;
  const entry = { name: "Entry", help: "of the accusation, in the log", value: (t) => t.entry };
  const deadline = (t) => t.until_unix_ms || 1000 * t.until_unix_timestamp;
  const columns = [...people,
    { name: "Since", help: "step of the round in which it was accused", value: (t) => t.since, show: (t) => whole(t.since) },
    { name: "Until", help: "a trial without a decision ends with the round of this step, but not before this time", value: (t) => t.until, show: (t) => el("span", { class: "whole" }, `${whole(t.until)}, ${when(deadline(t)).slice(11)}`) }];
  return section("Trials",
    el("h3", {}, "Open"),
    open.length ? el("div", { class: "scroll", id: "s-trials", tabindex: 0, role: "region", "aria-label": "Open trials, table" }, table("Open trials", h ? [...columns, entry] : columns, open)) : el("p", { class: "muted" }, "None."),
    h ? el("h3", {}, "Over") : null,
    past.length ? el("div", { class: "scroll", id: "s-past-trials", tabindex: 0, role: "region", "aria-label": "Trials that are over, table" }, table("Trials that are over", [
      ...people,
      { name: "Outcome", left: true, value: (t) => t.outcome, show: (t) => el("span", {}, el("strong", {}, t.outcome), t.ejected ? [": ", key(t.ejected), ` is ejected (entry ${t.end})`] : ` (entry ${t.end})`) },
      entry], past)) : h ? el("p", { class: "muted" }, "None.") : null,
    el("p", { class: "muted" }, "Members that do not train in a round audit results of other members, and accuse a member whose result fails. Eleven twentieths of a jury decide. The verdict guilty ejects the accused. The verdict innocent ejects the accuser if the accusation was of a wrong result. An accusation of silence that the jury does not confirm, and a trial without a decision, count as a complaint of the accuser in that epoch. Jurors need not vote. Every reader can check an accusation by its entry: psyche run export, then psyche run examine LOG --entry N."));
}
