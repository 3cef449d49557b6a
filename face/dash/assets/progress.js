// Draws the state of a run: its phase in words, the age of its newest entry, its progress and the remaining time.
import { ago, clock, counted, el, key, part, span, sum, when, whole } from "./parts.js";

// isOver reports whether a run has ended, or an entry of the list of runs.
export const isOver = (s) => s.run_state === "Finished" || s.closed;

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

// done returns the number of rounds that a run has completed.
export const done = (s) => Math.max(0, Math.min(s.step - 1, s.total_steps));

// short words for the phases of a run, for lists
export const phaseWords = { Uninitialized: "Starting", WaitingForMembers: "Waiting", Warmup: "Getting ready", RoundTrain: "Training", RoundWitness: "Training", Cooldown: "Saving", Finished: "Finished", Paused: "Paused" };

// missing returns the number of members that must still join before the run can train.
const missing = (s) => Math.max(0, s.config.init_min_clients - s.pending.length);

// state returns the state of a run in words, and its tone: good, warn, bad or muted. lost is the time of the host's last
// answer if the host does not answer now, or 0.
export function state(data, now, lost) {
  const s = data.status, at = done(s), all = whole(s.total_steps), since = s.run_state_start_unix_timestamp ? ` for ${ago(now - 1000 * s.run_state_start_unix_timestamp)}` : "";
  if (s.run_state === "Finished") return { tone: "good", text: "Finished" };
  if (lost) return { tone: "bad", text: `Dead: the host last answered ${ago(now - lost)} ago` };
  if (silent(data, now)) return { tone: "bad", text: data.behind ? "Stopped: the newest entries are not verified" : !data.history ? "Dead: the phase is over, and the host did not end it" : `Dead: the host last answered ${ago(now - data.history.now)} ago` };
  if (s.closed) return { tone: "muted", text: `Closed after round ${whole(at)} of ${all}` };
  const rounds = at ? `round ${whole(at)} of ${all}` : "the first round";
  switch (s.run_state) {
    case "Paused": return { tone: "warn", text: `Paused ${at ? "after" : "before"} ${rounds}${since}` };
    case "WaitingForMembers":
      if (missing(s)) return { tone: "warn", text: `Waiting for ${counted(missing(s), "more member")}${since}` };
      return { tone: "warn", text: s.waits_for_member ? `Waiting for a former member${since}` : s.awaits_model_until ? `Waiting for a member with the newest model${since}` : "Starting: enough members have joined" };
    case "Warmup": return { tone: "good", text: `Getting ready: members load the model${since}` };
    case "Cooldown": return { tone: "good", text: `Saving the model of ${rounds}` };
    case "RoundTrain": case "RoundWitness": return { tone: "good", text: `Training, round ${whole(Math.min(s.step, s.total_steps))} of ${all}` };
    default: return { tone: "muted", text: "Starting" };
  }
}

// alive draws the age of the log's newest entry.
export function alive(data, now) {
  const s = data.status, h = data.history;
  if (!s || !h || !h.now) return null;
  if (isOver(s)) return null;
  const age = span(Math.max(0, now - h.now)), stands = silent(data, now);
  if (data.behind) return el("p", { class: stands ? "problem host" : "muted host", role: stands ? "alert" : null }, `The newest entry that this browser has verified was written ${age} ago; the host reports ${whole(data.behind)} more.`);
  if (stands) {
    return el("p", { class: "problem", role: "alert" }, `No entry since ${when(h.now)}: the host has stopped, or this is an old copy of the log.`);
  }
  return null;
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

// progress draws the completed part of a run, with its start, the elapsed time and the expected end.
export function progress(data, now) {
  const s = data.status, h = data.history, at = done(s), began = h && h.began, over = isOver(s);
  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, " ", more) : null));
  const until = over && h ? h.now : now, t = silent(data, now) ? null : left(data);
  const end = over ? fact("Ended", clock(until, now))
    : t ? fact("Ends about", clock(now + t.likely, now), [`in ${span(t.likely)}`, el("span", { class: "wide" }, ` (${span(Math.min(t.least, t.likely))} to ${span(Math.max(t.most, t.likely))})`)])
      : fact("Ends", "not known", silent(data, now) ? "(stopped)" : s.run_state === "Paused" ? "(paused)" : "yet");
  return el("div", { id: "progress", "data-answers": "long" },
    el("progress", { max: s.total_steps, value: at, "aria-label": "Rounds done" }),
    el("dl", { class: "times" },
      fact("Rounds", el("span", { id: "done" }, `${whole(at)} of ${whole(s.total_steps)}`), `(${part(at, s.total_steps)})`),
      began ? [fact("Started", clock(began, now)), fact(over ? "Took" : "Elapsed", span((silent(data, now) ? h.now : until) - began))] : null, end));
}

// waits draws the conditions that the run waits for.
export function waits(data) {
  const s = data.status;
  if (!s || isOver(s)) return null;
  const say = (...text) => el("p", {}, text), waiting = s.pending.length, want = s.config.init_min_clients;
  if (s.run_state === "Paused") return say(s.pending_resume ? "The run resumes in a moment." : "The main authority of the run can resume it.");
  if (s.pending_pause) return say("The run pauses when its epoch ends.");
  if (s.run_state === "WaitingForMembers") {
    if (waiting < want) return el("p", { "data-answers": "who" }, `${whole(waiting)} of ${whole(want)} needed members are here`, s.pending.slice(0, 3).map((id, i) => [i ? ", " : ": ", key(id)]), waiting > 3 ? ", …" : ".");
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
