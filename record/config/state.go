package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
)

// defaultExtraTime is the value of waiting_for_members_extra_time, in milliseconds, in files
// without that key. Older files do not have it.
const defaultExtraTime = 3000

// defaultProbationSteps is the value of probation_steps in files without that key. It protects a run
// that any key may join from a flood of new members. A permissioned run has no probation.
const defaultProbationSteps = 8

// defaultEjectionEpochs is the value of ejection_epochs in files without that key. An ejection by
// the main authority lasts equally long.
const defaultEjectionEpochs = 1

// runStates contains the names of run_state.
var runStates = []string{
	"Uninitialized", "WaitingForMembers", "Warmup", "RoundTrain", "RoundWitness", "Cooldown", "Finished", "Paused",
}

// readRun reads the top level of a state.toml.
func readRun(root *table) Run {
	var run Run
	run.RunID = root.textOr("run_id", "", coordinator.MaxRunIDLength)
	name, description := root.readShown("name", MaxName), root.readShown("description", MaxDescription)
	if root.has("run_state") {
		// A server starts every loaded state in WaitingForMembers.
		oneOf(root, "run_state", runStates...)
	}
	var commitEvery uint32
	if config, ok := root.table("config"); ok {
		run.Config, commitEvery, run.Warnings = readConfig(config)
		if run.Config.Validate() == nil {
			for _, warning := range []string{committeeWarning(run.Config), absenceWarning(run.Config), auditsWarning(run.Config), probationWarning(run.Config), sharesWarning(run.Config), sharedAuditsWarning(run.Config)} {
				if warning != "" {
					run.Warnings = append(run.Warnings, warning)
				}
			}
		}
	}
	run.Progress = readProgress(root)
	readDiscarded(root)

	var llm *table
	if model, ok := root.table("model"); ok {
		if table, ok := model.table("LLM"); ok {
			llm = table
		}
		model.done()
	}
	var extra *table
	if root.has("model_extra_data") {
		extra, _ = root.sub("model_extra_data", root.values["model_extra_data"])
	}
	if llm != nil {
		run.Model = readModel(llm, extra, run.Config)
		run.Model.CommitEveryRounds, run.Model.Name, run.Model.Description = commitEvery, name, description
		run.Warnings = append(run.Warnings, run.Model.warnings()...)
		if err := run.Model.Trainable(); err != nil {
			llm.fail("optimizer", "%v", err)
		}
		checkColdStart(llm, run)
		if warning := clipAudited(llm, &run); warning != "" {
			run.Warnings = append(run.Warnings, warning)
		}
		checkAudits(llm, run)
		if warning := innerStepsWarning(run); warning != "" {
			run.Warnings = append(run.Warnings, warning)
		}
	}
	root.done()
	return run
}

// readProgress reads the progress of a saved run.
func readProgress(root *table) coordinator.Progress {
	if !root.has("progress") {
		return coordinator.Progress{}
	}
	table, ok := root.sub("progress", root.values["progress"])
	if !ok {
		return coordinator.Progress{}
	}
	progress := coordinator.Progress{
		Epoch:     number[uint32](table, "epoch"),
		Step:      number[uint32](table, "step"),
		DataIndex: number[uint64](table, "epoch_start_data_index"),
	}
	if progress.Step == 0 {
		table.fail("step", "is 0, want at least 1, the number of the first step")
	}
	table.done()
	return progress
}

// readDiscarded checks and discards the part of a saved state that describes the running epoch. Its
// members have left, and the run continues with a new epoch.
func readDiscarded(root *table) {
	if root.has("epoch_state") {
		root.sub("epoch_state", root.values["epoch_state"])
	}
	numberOr[uint64](root, "run_state_start_unix_timestamp", 0)
	if root.has("pending_pause") {
		if _, ok := root.values["pending_pause"].(bool); !ok {
			numberOr[uint8](root, "pending_pause", 0)
		}
	}
}

// readConfig reads [config]. The model definition contains commitEvery; hosts do not use it.
func readConfig(t *table) (c coordinator.Config, commitEvery uint32, warnings []string) {
	failed := len(t.problems)
	c = coordinator.Config{
		WarmupTime:                  t.seconds("warmup_time"),
		CooldownTime:                t.seconds("cooldown_time"),
		RoundsPerEpoch:              numberOr[uint32](t, "rounds_per_epoch", 0),
		EpochTime:                   t.secondsOr("epoch_time", 0),
		MaxRoundTrainTime:           t.seconds("max_round_train_time"),
		RoundWitnessTime:            t.seconds("round_witness_time"),
		WaitingForMembersExtraTime:  t.secondsOr("waiting_for_members_extra_time", defaultExtraTime),
		GlobalBatchSizeWarmupTokens: number[uint64](t, "global_batch_size_warmup_tokens"),
		GlobalBatchSizeStart:        number[uint32](t, "global_batch_size_start"),
		GlobalBatchSizeEnd:          number[uint32](t, "global_batch_size_end"),
		TotalSteps:                  number[uint32](t, "total_steps"),
		InitMinClients:              number[uint16](t, "init_min_clients"),
		MinClients:                  number[uint16](t, "min_clients"),
		WitnessNodes:                number[uint16](t, "witness_nodes"),
		VerificationPercent:         number[uint8](t, "verification_percent"),
		ProbationSteps:              numberOr[uint32](t, "probation_steps", defaultProbationSteps),
		EjectionEpochs:              numberOr[uint16](t, "ejection_epochs", defaultEjectionEpochs),
		SharesBySpeed:               t.has("shares_by_speed") && t.bool("shares_by_speed"),
		RetryLost:                   t.has("retry_lost") && t.bool("retry_lost"),
	}
	if commitEvery = numberOr[uint32](t, "commit_every_rounds", 0); commitEvery == 0 && t.has("commit_every_rounds") {
		t.fail("commit_every_rounds", "want at least 1; a number above the rounds of an epoch turns intermediate checkpoints off")
	}
	if t.has("round_apply_time") {
		number[uint64](t, "round_apply_time")
		warnings = append(warnings, "[config] round_apply_time has no effect; this phase no longer exists")
	}
	t.done()
	checkConfig(t, c, t.problems[failed:])
	return c, commitEvery, warnings
}

// checkConfig reports the coordinator's rules that the table violates, except the rules for keys
// that could not be read.
func checkConfig(t *table, c coordinator.Config, unread []problem) {
	mentioned := func(text string) bool {
		return slices.ContainsFunc(t.known, func(key string) bool {
			return hasWord(text, key) && slices.ContainsFunc(unread, func(p problem) bool { return hasWord(p.text, key) })
		})
	}
	for _, err := range c.Broken() {
		if !mentioned(err.Key + " " + err.Problem) {
			t.fail(err.Key, "%s", err.Problem)
		}
	}
}

// hasWord reports whether a text contains key as a whole word.
func hasWord(text, key string) bool {
	inKey := func(r rune) bool { return r == '_' || r >= 'a' && r <= 'z' }
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !inKey(r) }), key)
}

// defaultAuditedClip is the value of clip_grad_norm in an audited run whose file does not set it.
const defaultAuditedClip = 1

// clipAudited sets clip_grad_norm in an audited run whose file does not set it, and returns a
// warning. Files of the published format have neither that key nor audits. If a file sets 0,
// checkAudits reports it.
func clipAudited(llm *table, run *Run) string {
	distro := run.Model.Optimizer.Distro
	if run.Config.VerificationPercent == 0 || distro == nil {
		return ""
	}
	optimizer, _ := llm.values["optimizer"].(map[string]any)
	settings, _ := optimizer["Distro"].(map[string]any)
	if _, set := settings["clip_grad_norm"]; set {
		return ""
	}
	distro.ClipGradNorm = defaultAuditedClip
	return fmt.Sprintf("[model.LLM.optimizer.Distro] has no clip_grad_norm, so %d is used: verification_percent = %d, and audits rely on a bound for each step; set it to choose another bound",
		defaultAuditedClip, run.Config.VerificationPercent)
}

// checkAudits reports an audited run without a bound for its steps. An audit checks parts of a
// step. For the rest it relies on the fact that the whole step was clipped. checkAudits also
// reports local steps that depend on data only the member has, and local steps that keep the effect
// of a false result forever.
func checkAudits(llm *table, run Run) {
	if local := run.Model.Optimizer.LocalSteps; run.Config.VerificationPercent > 0 && local != nil {
		if local.OuterMomentum > 0 {
			llm.fail("optimizer", "outer_momentum is %g, but with verification_percent above 0 auditors would need each member's momentum, which they do not have; set outer_momentum = 0, or verification_percent = 0", local.OuterMomentum)
		}
		if local.ErrorDecay >= 1 {
			llm.fail("optimizer", "error_decay is 1, but with verification_percent above 0 one false result would be sent forever; set error_decay below 1, for instance 0.95, or verification_percent = 0")
		}
	}
	if distro := run.Model.Optimizer.Distro; run.Config.VerificationPercent > 0 && distro != nil && distro.ClipGradNorm == 0 {
		llm.fail("optimizer", "clip_grad_norm is 0, but with verification_percent above 0 nothing limits the parts of a result that audits skip; set clip_grad_norm (1.0 is usual), or verification_percent = 0")
	}
}

// innerStepsWarning returns a warning if a member has fewer sequences in a round than inner steps.
func innerStepsWarning(run Run) string {
	local, members := run.Model.Optimizer.LocalSteps, uint64(run.Config.InitMinClients)
	if local == nil || uint64(run.Config.GlobalBatchSizeStart) >= members*uint64(local.InnerSteps) {
		return ""
	}
	return fmt.Sprintf("[model.LLM.optimizer.LocalSteps] inner_steps = %d, and %d members share global_batch_size_start = %d sequences: each step needs at least one sequence, so members take fewer steps",
		local.InnerSteps, members, run.Config.GlobalBatchSizeStart)
}

// checkColdStart reports a warm-up after a cold start that may not fit into an epoch of EpochTime.
// The next epoch would start before the warm-up ends.
func checkColdStart(llm *table, run Run) {
	c, steps := run.Config, uint64(run.Model.ColdStartWarmupSteps)
	if steps == 0 || c.EpochTime <= c.WarmupTime || c.MaxRoundTrainTime == 0 {
		return
	}
	if limit := (c.EpochTime - c.WarmupTime) / c.MaxRoundTrainTime; steps > limit {
		llm.fail("cold_start_warmup_steps", "%d steps may not fit into an epoch: (epoch_time %s - warmup_time %s) / max_round_train_time %s = %d",
			steps, inSeconds(c.EpochTime), inSeconds(c.WarmupTime), inSeconds(c.MaxRoundTrainTime), limit)
	}
}
