// Draws the members of a run as people: name, share of the counted work, speed.
import { counted, el, jump, nameOf, percent, short, whole } from "./parts.js";

const shown = 7; // members in the list; the table has the others
const active = ["member", "late", "slow", "waits"];

const words = { member: "trains", late: "late", slow: "slow", waits: "joins the next epoch", left: "left", dropped: "dropped", ejected: "ejected" };

// everyone returns the members of a run, also if the host keeps no history.
export function everyone(data) {
  const s = data.status;
  if (data.history) return data.history.members;
  const none = { last: 0, counted: 0, assigned: 0, probation: 0, tokens: 0, lost: 0, elected: 0, witnessed: 0, late: 0, slow: 0, accused: 0, accuses: 0, dropped: 0, ejected: 0, disagreed: 0, left: 0, entry: 0 };
  const standing = { Healthy: "member", Dropped: "dropped", Withdrawn: "left", Ejected: "ejected" };
  return [...s.members.map((m) => ({ ...none, id: m.id, standing: standing[m.state] || m.state })), ...s.pending.map((id) => ({ ...none, id, standing: "waits" }))];
}

// order puts the members that take part before the others, and larger shares before smaller shares.
const order = (a, b) => Number(active.includes(b.standing)) - Number(active.includes(a.standing)) || b.tokens - a.tokens || (a.id < b.id ? -1 : 1);

// listed selects the members to list. Two places are for ejected members, if there are any.
function listed(all, over) {
  const sorted = [...all].sort(over ? (a, b) => b.tokens - a.tokens || order(a, b) : order), out = sorted.filter((m) => m.standing === "ejected").slice(0, 2);
  return [...sorted.filter((m) => m.standing !== "ejected").slice(0, shown - out.length), ...out];
}

function status(m, over, waiting, probation) {
  if (m.standing === "ejected") return el("span", { class: "bad" }, "ejected");
  if (probation && !over) return el("span", { title: "its results are checked, but do not count yet" }, `probation: ${counted(probation, "round")} to go`);
  if (over && active.includes(m.standing)) return counted(m.counted, "round");
  return waiting && m.standing === "waits" ? "is here" : words[m.standing] || m.standing;
}

// face draws the first letter of a name or key.
function face(m) {
  const hue = [...m.id].reduce((h, c) => (31 * h + c.charCodeAt(0)) % 6, 0);
  return el("span", { class: `face f${hue}`, "aria-hidden": "true" }, [...(nameOf(m.id) || m.id)][0].toUpperCase());
}

const short8 = (id) => el("span", { class: "key", title: id }, id.slice(0, 8) + "…");

// name draws the name that a member claims, or its shortened key.
const name = (id) => nameOf(id) ? el("bdi", { class: "claim person", title: id + " calls itself so" }, nameOf(id)) : el("span", { class: "person" }, short8(id));

function row(m, all, most, over, waiting, probation) {
  const fill = el("i", {});
  fill.style.width = (most ? 100 * m.tokens / most : 0).toFixed(1) + "%";
  return el("li", { class: m.standing === "ejected" ? "out" : active.includes(m.standing) || over ? null : "gone" }, face(m),
    el("span", { class: "who" }, name(m.id), el("small", {}, nameOf(m.id) ? [short8(m.id), " · "] : null, status(m, over, waiting, probation))),
    waiting ? null : [el("span", { class: "share" }, el("span", { class: "bar", "aria-hidden": "true" }, fill), percent(m.tokens / all)),
      el("small", { class: "speed", title: "tokens per second while it computes, as the member claims" }, m.claimed_speed ? short(m.claimed_speed, 2) + " t/s†" : "")]);
}

// people draws the members with the largest shares.
export function people(data, over) {
  const s = data.status, all = everyone(data), waiting = s.run_state === "WaitingForMembers" && !all.some((m) => m.tokens);
  const probation = new Map(s.members.map((m) => [m.id, m.probation_rounds]));
  const list = listed(all, over), most = Math.max(0, ...list.map((m) => m.tokens)), n = (...kinds) => all.filter((m) => kinds.includes(m.standing)).length;
  const part = n("member", "late", "slow"), others = [[over || waiting ? 0 : n("waits"), "waiting"], [n("dropped"), "dropped"], [n("left"), "left"], [n("ejected"), "ejected"]].filter(([count]) => count);
  const title = over ? counted(all.filter((m) => m.tokens).length, "contributor") : part || !waiting ? counted(part, "member") : n("waits") ? `${whole(n("waits"))} here` : "Nobody is here yet";
  return el("section", { class: "people", "aria-labelledby": "h-people", "data-answers": "who" },
    el("h2", { id: "h-people" }, title),
    others.length ? el("p", { class: "muted sum" }, others.map(([count, word], i) => [i ? ", " : "", el("span", { class: word === "ejected" ? "bad" : null }, `${whole(count)} ${word}`)])) : null,
    list.length ? el("ol", { class: "faces" }, list.map((m) => row(m, Math.max(1, data.history ? data.history.tokens : 0), most, over, waiting, probation.get(m.id)))) : el("p", {}, over ? "Nobody took part." : "You can be the first."),
    all.length ? el("p", { class: "foot" }, el("button", { type: "button", class: "link", onclick: () => jump("h-members") }, all.length > list.length ? `All ${whole(all.length)} members` : "All about the members"),
      list.some((m) => m.claimed_speed) ? el("small", { class: "muted" }, " † claimed, not checked") : null) : null);
}
