package recipe

import (
	"fmt"
	"math"
	"net"
	"strconv"
)

// Choice is one value of a run's state.toml.
type Choice struct {
	Section string // table of the file; empty: the top level
	Key     string
	Value   any // string, bool, int, float64 or []float64
	Reason  string
	Shown   bool // psyche host prints it
}

// learningRate is the base learning rate of each kind of run.
//
// From random weights, local AdamW with 1e-3 ends at a loss of 2.671, and with 1.5e-3 at 2.700 (307 k
// tokens). 4e-3 is the rate of DisTrO in configs/cheats. We did not measure the rate for a trained model: it
// is a tenth of the rate for random weights.
func (p plan) learningRate() (rate float64, reason string) {
	rate, reason = 1e-3, "with 2e-3 or 1.5e-3, the loss is higher (2.700 instead of 2.671 after 307 k tokens)"
	if p.distro {
		rate, reason = 4e-3, "the rate of DisTrO in configs/cheats"
	}
	if p.Trained {
		return rate / 10, "a tenth of the rate for random weights, because the model is trained already; not measured"
	}
	return rate, reason
}

// table returns all values of state.toml, section by section.
func (p plan) table() []Choice {
	choices := []Choice{{"", "run_id", p.Name, "The name in the invite link. It cannot change.", false}}
	choices = append(choices, p.rules()...)
	choices = append(choices, p.model()...)
	choices = append(choices, p.schedule()...)
	if p.distro {
		return append(choices, p.distroKeys()...)
	}
	return append(choices, p.localKeys()...)
}

// rules returns the values of [config].
func (p plan) rules() []Choice {
	minimum, begin, probation := p.initial, "The host begins alone. Friends join at the next epoch.", 0
	if p.Open {
		minimum, probation = max(1, p.initial/2), 8
		begin = fmt.Sprintf("%d of %d expected members begin: dishonest members stay below a third", p.initial, p.members)
	}
	const section = "config"
	return []Choice{
		{section, "init_min_clients", p.initial, begin, true},
		{section, "min_clients", minimum, "An epoch ends early with fewer members.", false},
		{section, "waiting_for_members_extra_time", 1, "Seconds, as in all files in configs/.", false},
		{section, "warmup_time", p.warmup, fmt.Sprintf("Seconds for loading the model: three times its transfer over %v, at least %.0f, but at most half of epoch_time.", p.Link, leastWarmup), false},
		{section, "epoch_time", p.epoch, "seconds until new members can join and the model is saved", true},
		{section, "commit_every_rounds", max(1, int(p.epoch/4/p.each)), "About four intermediate checkpoints in an epoch.", false},
		{section, "max_round_train_time", p.limit, "Seconds: three times what one machine needs alone for a whole round.", false},
		{section, "round_witness_time", 1, "Seconds, as in all files in configs/, also over slow links.", false},
		{section, "cooldown_time", 30, "Seconds, as in all files in configs/.", false},
		{section, "witness_nodes", 0, "All members are witnesses, so a few cannot decide which results count.", false},
		{section, "verification_percent", p.percent, p.auditReason(), p.Open},
		{section, "probation_steps", probation, "Rounds until results of a new member count. Friends need no probation.", false},
		{section, "global_batch_size_start", p.batch(p.firstSteps), "Sequences of a round over all members, at first.", false},
		{section, "global_batch_size_end", p.batch(p.steps), p.batchReason(), true},
		{section, "global_batch_size_warmup_tokens", p.growing(), "Tokens until the batch has its final size.", false},
		{section, "total_steps", p.rounds, p.roundsReason(), true},
	}
}

func (p plan) batchReason() string {
	train := fmt.Sprintf("%d members train", p.trainers)
	if p.trainers == 1 {
		train = "one member trains"
	}
	return fmt.Sprintf("sequences of a round: %s %d tokens", train, p.batch(p.steps)*p.seqLen)
}

func (p plan) roundsReason() string {
	duration := "in " + hours(p.Hours)
	if p.rounds == leastRounds {
		duration = "as the least number"
	}
	return fmt.Sprintf("rounds of about %s %s, if all machines are as fast as this one", seconds(p.each), duration)
}

func (p plan) auditReason() string {
	if !p.Open {
		return "No audits: the members know each other."
	}
	return fmt.Sprintf("audits: of %d members, %d check other members' results in each round", p.initial, p.initial*p.percent/100)
}

// growing returns the number of tokens in which the batch grows.
func (p plan) growing() int {
	if p.firstSteps == p.steps {
		return 0
	}
	return int(growShare * p.tokens)
}

// model returns the values of [model.LLM], the data and the first model.
func (p plan) model() []Choice {
	const section = "model.LLM"
	choices := []Choice{
		{section, "architecture", "HfAuto", "The architecture in the config.json of the model.", false},
		{section, "data_type", "Pretraining", "The data is in token files.", false},
		{section, "max_seq_len", p.seqLen, "Tokens of a sequence, as in all measurements of this table.", false},
		{section, "cold_start_warmup_steps", 0, "No second warm-up, as in all files in configs/.", false},
		{"[model.LLM.data_locations]", "Server", p.address(p.Host), "The data server of the host, as other machines reach it.", false},
	}
	if p.Host != Loopback {
		choices = append(choices, Choice{"[model.LLM.data_locations]", "Server", p.address(Loopback), "The same data server, for the host's own client. Other machines skip this location.", false})
	}
	if p.Hub != "" {
		return append(choices, Choice{"model.LLM.checkpoint.Hub", "repo_id", p.Hub, "Members download the model from the Hub.", false})
	}
	return append(choices, Choice{"model.LLM.checkpoint.Local", "path", "model", "The server sends this folder to members.", false})
}

// Loopback is the address at which only the host reaches itself.
const Loopback = "127.0.0.1"

func (p plan) address(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(int(p.Port)))
}

// schedule returns the learning rate. With local steps, the rate is stable for 70 % of the run, and then
// falls linearly to a twentieth: the loss is 3.1 % lower than with a cosine (one order of the text).
// DisTrO was measured with a cosine.
func (p plan) schedule() []Choice {
	rate, reason := p.learningRate()
	warmup := p.share(warmupShare)
	if p.distro {
		const section = "model.LLM.lr_schedule.Cosine"
		return []Choice{
			{section, "base_lr", rate, reason, true},
			{section, "warmup_steps", warmup, "A tenth of the rounds.", false},
			{section, "warmup_init_lr", 0.0, "The rate of the first round.", false},
			{section, "total_steps", p.rounds, "The last round.", false},
			{section, "final_lr", rate / 10, "A tenth of base_lr, as in configs/cheats.", false},
		}
	}
	const section = "model.LLM.lr_schedule.WarmupStableDecay"
	stable := p.share(stableShare) - warmup
	return []Choice{
		{section, "base_lr", rate, reason, true},
		{section, "warmup_steps", warmup, "A tenth of the rounds.", false},
		{section, "warmup_init_lr", 0.0, "The rate of the first round.", false},
		{section, "stable_steps", stable, "Until 70 % of the rounds: the loss is 3.1 % lower than with a cosine.", false},
		{section, "cosine_decay_steps", 0, "The rate falls only linearly.", false},
		{section, "cosine_decay_final_lr", rate, "The rate at which the linear decay begins.", false},
		{section, "linear_decay_steps", p.rounds - warmup - stable, "The rest of the rounds.", false},
		{section, "linear_decay_final_lr", rate / 20, "A twentieth of base_lr.", false},
	}
}

// distroKeys returns the optimizer of an open run.
func (p plan) distroKeys() []Choice {
	const section = "model.LLM.optimizer.Distro"
	return []Choice{
		{section, "clip_grad_norm", 1.0, "Bounds the effect of one false step (docs/trust.md).", false},
		{section, "compression_decay", 0.9, "As in configs/cheats.", false},
		{section, "compression_topk", p.topK, p.reason, true},
		{section, "compression_chunk", 64, "As in configs/cheats.", false},
		{section, "quantize_1bit", true, "Members send only signs.", false},
	}
}

// localKeys returns the optimizer of a run among friends.
func (p plan) localKeys() []Choice {
	const section = "model.LLM.optimizer.LocalSteps"
	return []Choice{
		{section, "inner_steps", p.steps, p.reason, true},
		{section, "inner_optimizer", "adamw", "With steps of one sequence, Muon has no advantage, and takes more time on CPUs.", false},
		{section, "betas", []float64{0.9, 0.99}, "As in all measurements of this table.", false},
		{section, "weight_decay", 0.1, "As in all measurements of this table.", false},
		{section, "clip_grad_norm", 1.0, "As in all measurements of this table.", false},
		{section, "outer_lr", 1.0, "As in all measurements of this table.", false},
		{section, "compression_topk", p.topK, fmt.Sprintf("coefficients of each chunk: a result takes %s; with few coefficients, the loss is 4 %% higher", bytes(p.result)), true},
		{section, "compression_chunk", 32, "As in all measurements of this table.", false},
		{section, "value_bits", 2, "As in all measurements of this table.", false},
		{section, "error_decay", 1.0, "Members keep their unsent progress: without it, the loss is 1.6 % higher.", false},
		{section, "apply_lag", p.lag, "With 2, members exchange results while they train the next round.", false},
	}
}

// seconds, hours and bytes format quantities for people.
func seconds(s float64) string { return strconv.FormatFloat(round(s), 'f', -1, 64) + " s" }

func hours(h float64) string {
	switch {
	case h < 1:
		return strconv.FormatFloat(round(h*60), 'f', -1, 64) + " minutes"
	case h == 1:
		return "an hour"
	}
	return strconv.FormatFloat(round(h), 'f', -1, 64) + " hours"
}

func bytes(n float64) string { return strconv.FormatFloat(math.Ceil(n/1024), 'f', -1, 64) + " KiB" }

// round rounds to two digits after the point, or to one if the number is at least 10.
func round(x float64) float64 {
	if x >= 10 {
		return math.Round(x*10) / 10
	}
	return math.Round(x*100) / 100
}
