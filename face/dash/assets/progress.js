// Whether a run is alive, how far it is and how long it still takes, and what it waits for.
import { el, key, span, tile, when, whole } from "./parts.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);
const isOver = (s) => s.run_state === "Finished" || s.closed;

// How long a phase lasts at most, in ms; null: only what somebody does ends it.
function limit(s) {
  const c = s.config;
  return { Warmup: c.warmup_time, RoundTrain: c.max_round_train_time, RoundWitness: c.round_witness_time, Cooldown: c.cooldown_time }[s.run_state] * 1000 || null;
}

const grace = 30000; // of hosts, and of chains, which tick when somebody has noticed

// silent returns for how many ms a phase has been over that nobody ended: its host is gone, or the log is a copy. 0: it is not.
export function silent(data, now) {
  const s = data.status;
  if (!s || isOver(s) || !limit(s) || !s.run_state_start_unix_timestamp) return 0;
  const over = now - 1000 * s.run_state_start_unix_timestamp - limit(s) - grace;
  return over > 0 ? over : 0;
}

// alive draws the age of the log's newest entry.
export function alive(data, now) {
  const s = data.status, h = data.history;
  if (!s || !h || !h.now) return null;
  if (isOver(s)) return el("p", { class: "muted" }, `Its newest entry is of ${when(h.now)}.`);
  const age = span(Math.max(0, now - h.now)), stands = silent(data, now);
  if (data.behind) return el("p", { class: stands ? "problem host" : "muted host", role: stands ? "alert" : null }, `The newest entry that this browser has verified was written ${age} ago; the host reports ${whole(data.behind)} more.`);
  if (stands) {
    return el("p", { class: "problem", role: "alert" }, `Nobody has written to this log since ${when(h.now)}, for ${age}: its host has stopped, or this is an older copy of its log.`);
  }
  return el("p", { class: "muted" }, `Its newest entry was written ${age} ago.`);
}

// quantile of a sorted list.
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];

// left returns how long the steps that are left take: as the median of the newest rounds, and as the faster and the
// slower quarter of them, in ms, with all that lies between rounds. null: there is nothing to tell it from.
export function left(data) {
  const s = data.status, h = data.history;
  if (!s || !h || isOver(s) || s.run_state === "Paused") return null;
  const rounds = h.rounds.slice(-60), steps = s.total_steps - Math.min(s.step, s.total_steps) + 1;
  if (rounds.length < 3) return null;
  const each = rounds.map((r) => sum(r.w) / r.n).sort((a, b) => a - b), mean = sum(rounds.map((r) => sum(r.w))) / sum(rounds.map((r) => r.n));
  // An epoch's ends fall on few rounds: they are in the mean, and not in the median of single ones.
  const between = Math.max(0, mean - quantile(each, 0.5));
  return { likely: steps * mean, least: steps * (quantile(each, 0.25) + between), most: steps * (quantile(each, 0.75) + between) };
}

export function leftTile(data, now) {
  const t = left(data);
  if (!t || silent(data, now)) return null;
  return tile("Time left", span(t.likely), `if rounds go on as the newest did: ${span(Math.min(t.least, t.likely))} to ${span(Math.max(t.most, t.likely))}; until ${when(now + t.likely)}`,
    `${span(Math.min(t.least, t.likely))} to ${span(Math.max(t.most, t.likely))}`);
}

// waits says for what and whom a run waits.
export function waits(data) {
  const s = data.status;
  if (!s || isOver(s)) return null;
  const say = (...text) => el("p", {}, text), waiting = s.pending.length, want = s.config.init_min_clients;
  if (s.run_state === "Paused") return say("It is paused: its main authority lets it go on.");
  if (s.run_state === "WaitingForMembers") {
    if (waiting < want) return say(`It waits for members: ${whole(waiting)} of the ${whole(want)} that an epoch needs are there.`);
    if (s.waits_for_member) return say(`It waits for somebody who was a member before: ${whole(waiting)} newcomers are there, and none has the model of step ${whole(s.checkpoint.step || 0)}.`);
    if (s.awaits_model_until) return say(`It waits for somebody who has the model of step ${whole(s.checkpoint.step || 0)}, which none of the ${whole(waiting)} clients has that are there and were members before. Until ${when(1000 * s.awaits_model_until)}: then it goes on from an older one, unless a newcomer has it.`);
    return say(`${whole(waiting)} clients are there; the next epoch begins in a moment.`);
  }
  if (s.run_state === "Warmup") {
    const late = s.members.filter((m) => m.state === "Healthy" && !m.ready);
    return late.length ? say(`Members load the model; it waits for ${whole(late.length)} of ${whole(s.members.length)}: `, late.slice(0, 5).map((m, i) => [i ? ", " : "", key(m.id)]), late.length > 5 ? ", …" : ".") : null;
  }
  return null;
}
