// What members found of each other: their standing, audits and trials.
import { bad, el, key, section, table, whole } from "./parts.js";

const tone = { member: "good", late: "warn", slow: "warn", dropped: "bad", ejected: "bad" };

// standing is what a member is, since which entry, and why.
export function standing(m, epoch) {
  const until = !m.until ? "" : m.until > epoch ? `, until epoch ${m.until}` : `; since epoch ${m.until} it may join again`;
  return el("span", { class: m.why ? "why" : null }, el("span", { class: tone[m.standing] || "muted" }, m.standing),
    m.why ? el("span", { class: "muted" }, `: ${m.why}${until} (entry ${m.entry})`) : null);
}

// audited reports whether there is anything to tell of audits.
function audited(data) {
  const h = data.history;
  return data.status.config.verification_percent > 0 || h && h.members.some((m) => m.judged || m.tried);
}

// auditColumns are those of the members' table.
export function auditColumns(data) {
  if (!data.history || !audited(data)) return [];
  return [
    { name: "Audited", help: "verdicts about its results", value: (m) => (m.failed || 0) * 1e9 + (m.passed || 0),
      show: (m) => el("span", { class: "whole" }, `${whole(m.passed || 0)} passed, `, bad(m.failed || 0), " failed") },
    { name: "Audits", help: "verdicts that it gave about others", value: (m) => m.judged || 0, show: (m) => whole(m.judged || 0) },
    { name: "Tried", help: "times that a jury voted on it", value: (m) => m.tried || 0, show: (m) => bad(m.tried || 0) },
    { name: "Votes", help: "that it gave as a juror", value: (m) => m.voted || 0, show: (m) => whole(m.voted || 0) },
  ];
}

const votes = (t) => t.jury ? `${t.guilty} guilty, ${t.innocent} innocent, of ${t.jury}` : "the jury is not drawn yet";

const people = [
  { name: "Accused", left: true, value: (t) => t.accused, show: (t) => key(t.accused) },
  { name: "Accuser", left: true, value: (t) => t.accuser, show: (t) => key(t.accuser) },
  { name: "Of", left: true, help: "what it is accused of", value: (t) => t.fault },
  { name: "Step", help: "of the round in which the accuser audited", value: (t) => t.step, show: (t) => whole(t.step) },
  { name: "Votes", left: true, value: votes },
  { name: "Opened", left: true, help: "whether the accused published what jurors need", value: (t) => t.opened || t.opening ? "yes" : "no" },
];

// trials are those that are open, and those that are over.
export function trials(data) {
  const s = data.status, h = data.history;
  if (!s || !audited(data)) return null;
  const open = h ? h.open_trials : s.trials, past = h ? h.past_trials : [];
  const entry = { name: "Entry", help: "of the accusation, in the log", value: (t) => t.entry };
  const columns = [...people, { name: "Round", help: "rounds since the accusation; without a decision in six nobody loses", value: (t) => s.step - t.since, show: (t) => `${Math.max(0, s.step - t.since)} of 6` }];
  return section("Trials",
    el("h3", {}, "Open"),
    open.length ? el("div", { class: "scroll", id: "s-trials", tabindex: 0, role: "region", "aria-label": "Open trials, table" }, table("Open trials", h ? [...columns, entry] : columns, open)) : el("p", { class: "muted" }, "None."),
    h ? el("h3", {}, "Over") : null,
    past.length ? el("div", { class: "scroll", id: "s-past-trials", tabindex: 0, role: "region", "aria-label": "Trials that are over, table" }, table("Trials that are over", [
      ...people,
      { name: "Outcome", left: true, value: (t) => t.outcome, show: (t) => el("span", {}, el("strong", {}, t.outcome), t.ejected ? [": ", key(t.ejected), ` is ejected (entry ${t.end})`] : ` (entry ${t.end})`) },
      entry], past)) : h ? el("p", { class: "muted" }, "None.") : null,
    el("p", { class: "muted" }, "Members that do not train in a round audit others; who judged may accuse, and whom it judged may accuse it of having computed nothing. Two thirds of a jury decide: guilty ejects the accused, innocent the accuser, unless it said only that somebody did not open or reveal, or nothing was opened."));
}
