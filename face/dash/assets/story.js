// Draws the events that a reader must know about, and the evidence against ejected members.
import { counted, el, jump, key, percent, section, short, whole } from "./parts.js";
import { everyone } from "./people.js";
import { alive, waits } from "./progress.js";

// Reasons of an ejection, as in the log, for one and for several members.
const reasons = [
  [/false accusation/, "for a false accusation", "for false accusations"],
  [/wrong result|part \d+/, "for a false result", "for false results"],
  [/opens to nobody/, "for withholding its result", "for withholding results"],
  [/two results/, "for signing two different results", "for signing different results"],
  [/main authority/, "by the main authority", "by the main authority"],
  [/^earlier$/, "earlier", "earlier"],
  [/./, "for breaking a rule", "for breaking rules"],
];

// ejected returns the members that are or were ejected.
const ejected = (data) => everyone(data).filter((m) => m.standing === "ejected" || m.ejected);

// why returns the reasons of ejections: " for false results", or ": 2 for false results, 1 by the main authority".
function why(list) {
  const groups = new Map();
  for (const m of list) {
    const reason = reasons.find(([pattern]) => pattern.test(m.standing === "ejected" ? m.why || "-" : "earlier"));
    groups.set(reason, (groups.get(reason) || 0) + 1);
  }
  if (groups.size === 1) return [...groups].map(([reason, n]) => " " + reason[n > 1 ? 2 : 1])[0];
  return ": " + [...groups].map(([reason, n]) => `${n} ${reason[n > 1 ? 2 : 1]}`).join(", ");
}

const banner = (tone, words, attributes = {}) => el("p", { class: "banner " + tone, ...attributes }, el("span", {}, words));
const button = (text, does) => el("button", { type: "button", class: "link", onclick: does }, text);

// banners draws what is wrong with a run, or that nothing is. invite opens the invitation; null means that the page has none.
export function banners(data, now, invite) {
  const s = data.status, list = ejected(data), parts = [];
  if (data.problem) parts.push(el("p", { class: "problem host", role: "alert" }, "The host reports that it cannot follow the log of this run: " + data.problem));
  parts.push(alive(data, now));
  if (list.length) {
    parts.push(banner("bad", [el("strong", {}, `${counted(list.length, "member was", "members were")} ejected${why(list)}. `),
      data.history ? button("See the evidence", () => jump("h-evidence")) : null], { id: "cheats", "data-answers": "wrong" }));
  }
  const waiting = waits(data);
  if (waiting && s.run_state === "WaitingForMembers") parts.push(banner("warn", [...waiting.childNodes, " ", invite ? button("Invite someone", invite) : null], { id: "waiting", "data-answers": waiting.dataset.answers || null }));
  else if (waiting) parts.push(banner("warn", [...waiting.childNodes]));
  if (!list.length) parts.push(calm(data));
  if (s.run_state === "WaitingForMembers") parts.push(learned(data));
  return parts;
}

// calm draws the statement that no member was ejected.
function calm(data) {
  const s = data.status, dropped = everyone(data).filter((m) => m.standing === "dropped").length;
  const open = (data.history ? data.history.open_trials : s.trials || []).length;
  const audits = open ? `No ejections. ${counted(open, "member is", "members are")} on trial.` : s.config.verification_percent > 0 ? "Audits found no cheating." : "No ejections. Without audits, false results would go unnoticed.";
  return el("p", { id: "calm", class: "muted", "data-answers": "wrong" }, audits + (dropped ? ` ${counted(dropped, "member was", "members were")} dropped for silence.` : ""));
}

// learned draws the loss so far while the run waits, because the invitation has the place of the chart.
function learned(data) {
  const c = data.history && data.history.rounds.length && data.status.claimed;
  return el("p", { id: "learned", class: "muted", "data-answers": "learning" }, c && c.loss.claims ? `Loss so far: ${short(c.loss.median, 4)}, as members claim.` : "Learning has not begun.");
}

// evidence lists the ejected members with the reason, the votes and a command that checks the entry of the log.
export function evidence(data) {
  const h = data.history, list = data.status && h ? ejected(data) : [];
  if (!list.length) return null;
  const of = (m) => h.past_trials.find((t) => t.ejected === m.id), safe = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(data.status.run_id) ? data.status.run_id : "RUN";
  const item = (m) => {
    const t = of(m);
    return el("li", {}, el("p", {}, el("strong", { class: "bad" }, key(m.id)), " ", m.standing === "ejected" ? `was ejected: ${m.why}.` : "was ejected earlier.",
      t ? ` Of ${whole(t.jury)} jurors, ${whole(t.guilty)} voted guilty and ${whole(t.innocent)} innocent, about step ${whole(t.step)}.` : "",
      m.counted ? ` Before that, ${counted(m.counted, "round")} of its results counted, ${percent(m.tokens / Math.max(1, h.tokens))} of all tokens.` : " None of its results counted."),
    m.entry || t ? el("pre", { tabindex: 0, role: "region", "aria-label": "Command that checks the evidence against " + m.id }, el("code", {}, `psyche run examine ${safe}.log --entry ${t ? t.entry : m.entry}`)) : null);
  };
  return section("Evidence", el("p", {}, "Every ejection is in the signed log of the run, so you need not trust this page. Get the log with psyche run export, then check an entry:"),
    el("ul", { class: "evidence" }, list.slice(0, 20).map(item)), list.length > 20 ? el("p", { class: "muted" }, `The table of members has the other ${whole(list.length - 20)}.`) : null);
}
