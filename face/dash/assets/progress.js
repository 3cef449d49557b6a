// Draws the age of a run's newest entry, the remaining time, and the clients that the run waits for.
import { el, key, span, tile, when, whole } from "./parts.js";

const sum = (list) => list.reduce((a, b) => a + b, 0);
const isOver = (s) => s.run_state === "Finished" || s.closed;

// limit returns the maximum length of a phase in ms; null means that only an action ends the phase.
function limit(s) {
  const c = s.config;
  return { Warmup: c.warmup_time, RoundTrain: c.max_round_train_time, RoundWitness: c.round_witness_time, Cooldown: c.cooldown_time }[s.run_state] * 1000 || null;
}

const grace = 30000; // for hosts, and for chains, where clients send ticks

// silent returns the time in ms by which a phase has exceeded its limit: its host has stopped, or
// the log is a copy. 0 means that the phase is within its limit.
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
  if (isOver(s)) return el("p", { class: "muted" }, `The newest entry is from ${when(h.now)}.`);
  const age = span(Math.max(0, now - h.now)), stands = silent(data, now);
  if (data.behind) return el("p", { class: stands ? "problem host" : "muted host", role: stands ? "alert" : null }, `The newest entry that this browser has verified was written ${age} ago; the host reports ${whole(data.behind)} more.`);
  if (stands) {
    return el("p", { class: "problem", role: "alert" }, `The log has no new entries since ${when(h.now)}, for ${age}: its host has stopped, or this is an older copy of the log.`);
  }
  return el("p", { class: "muted" }, `The newest entry was written ${age} ago.`);
}

// quantile returns a quantile of a sorted list.
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];

// left returns the time of the remaining steps in ms: at the median of the newest rounds, and at
// the quartiles, including the time between rounds. It returns null if there are too few rounds for
// an estimate.
export function left(data) {
  const s = data.status, h = data.history;
  if (!s || !h || isOver(s) || s.run_state === "Paused") return null;
  const rounds = h.rounds.slice(-60), steps = s.total_steps - Math.min(s.step, s.total_steps) + 1;
  if (rounds.length < 3) return null;
  const each = rounds.map((r) => sum(r.w) / r.n).sort((a, b) => a - b), mean = sum(rounds.map((r) => sum(r.w))) / sum(rounds.map((r) => r.n));
  // Few rounds contain the end of an epoch. So the mean includes that time, and the median of
  // single rounds does not.
  const between = Math.max(0, mean - quantile(each, 0.5));
  return { likely: steps * mean, least: steps * (quantile(each, 0.25) + between), most: steps * (quantile(each, 0.75) + between) };
}

export function leftTile(data, now) {
  const t = left(data);
  if (!t || silent(data, now)) return null;
  return tile("Time left", span(t.likely), `at the speed of the newest rounds: ${span(Math.min(t.least, t.likely))} to ${span(Math.max(t.most, t.likely))}; until ${when(now + t.likely)}`,
    `${span(Math.min(t.least, t.likely))} to ${span(Math.max(t.most, t.likely))}`);
}

// waits draws the conditions that the run waits for.
export function waits(data) {
  const s = data.status;
  if (!s || isOver(s)) return null;
  const say = (...text) => el("p", {}, text), waiting = s.pending.length, want = s.config.init_min_clients;
  if (s.run_state === "Paused") return say("The run is paused: its main authority can resume it.");
  if (s.run_state === "WaitingForMembers") {
    if (waiting < want) return say(`The run waits for members: ${whole(waiting)} of the ${whole(want)} that an epoch needs have joined.`);
    if (s.waits_for_member) return say(`The run waits for a former member: ${whole(waiting)} newcomers have joined, and none has the model of step ${whole(s.checkpoint.step || 0)}.`);
    if (s.awaits_model_until) return say(`The run waits for a client with the model of step ${whole(s.checkpoint.step || 0)}: the ${whole(waiting)} former members that joined do not have it. At ${when(1000 * s.awaits_model_until)} the run continues from an older model, unless a newcomer has this model.`);
    return say(`${whole(waiting)} clients have joined; the next epoch begins in a moment.`);
  }
  if (s.run_state === "Warmup") {
    const late = s.members.filter((m) => m.state === "Healthy" && !m.ready);
    return late.length ? say(`Members load the model; the run waits for ${whole(late.length)} of ${whole(s.members.length)}: `, late.slice(0, 5).map((m, i) => [i ? ", " : "", key(m.id)]), late.length > 5 ? ", …" : ".") : null;
  }
  return null;
}
