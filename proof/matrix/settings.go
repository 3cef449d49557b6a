package main

import (
	"strconv"

	"github.com/pelletier/go-toml/v2"
)

const (
	runID     = "matrix"
	seqLen    = 32
	epochTime = 20 // seconds, if epochs end by time
	witnesses = 2  // if they are few
	probation = 2  // rounds, of a client that joins an open run
	members   = 4  // at the start
)

// steps returns the rounds of a row's run, and of its epochs if they end by rounds.
func (r row) steps() (all, epoch int) {
	switch chain, long := r.has("backend", "chain"), r.has("rounds", "long"); {
	case chain && long:
		all, epoch = 24, 8
	case chain:
		all, epoch = 40, 10
	case long:
		all, epoch = 32, 8
	default:
		all, epoch = 160, 40
	}
	if r.brief {
		all /= 2
	}
	return all, epoch
}

// enough returns the number of members that an epoch of the row needs: all that remain.
func (r row) enough() int {
	if r.has("leaver", "leaves") {
		return members - 1
	}
	return members
}

// state returns the row's state.toml.
func (r row) state(w *world) ([]byte, error) {
	all, epoch := r.steps()
	batch := 12
	switch long := r.has("rounds", "long"); {
	case long && r.has("device", "cpu"):
		batch = 240
	case long:
		batch = 20 // an emulated device computes about 15 sequences per second
	}
	audits, err := strconv.Atoi(r.levels["audits"])
	if err != nil {
		return nil, err
	}
	config := map[string]any{
		"init_min_clients": r.enough(), "min_clients": 2, "waiting_for_members_extra_time": 2,
		"warmup_time": 60, "max_round_train_time": 30, "round_witness_time": 1, "cooldown_time": 30,
		"verification_percent": audits, "probation_steps": probation, "witness_nodes": 0, "total_steps": all,
		"global_batch_size_start": batch, "global_batch_size_end": batch, "global_batch_size_warmup_tokens": 0,
	}
	if r.has("shares", "speeds") {
		config["shares_by_speed"] = true
	}
	if r.has("returns", "on") {
		config["retry_lost"] = true
	}
	if r.has("witnesses", "few") {
		config["witness_nodes"] = witnesses
	}
	if r.has("epochs", "time") {
		config["epoch_time"], config["warmup_time"], config["max_round_train_time"] = epochTime, epochTime-2, epochTime-2
	} else {
		config["rounds_per_epoch"] = epoch
	}
	model := map[string]any{
		"architecture": "HfLlama", "data_type": "Pretraining", "max_seq_len": seqLen, "cold_start_warmup_steps": 0,
		"data_location": w.data.Location, "checkpoint": w.checkpoint, "optimizer": r.optimizer(),
		"lr_schedule": map[string]any{"Constant": map[string]any{"base_lr": 4e-3, "warmup_steps": 0, "warmup_init_lr": 0.0}},
	}
	return toml.Marshal(map[string]any{"run_id": runID, "config": config, "model": map[string]any{"LLM": model}})
}

// optimizer returns the row's optimizer: local steps, or DisTrO, whose lag the dummy model also
// uses. For a row that must be refused because it combines the dummy optimizer with a real model,
// it returns the dummy optimizer.
func (r row) optimizer() any {
	if r.has("results", "dummy") && !r.has("checkpoint", "local") {
		return "Dummy"
	}
	lag, clip := 1, 1.0
	if r.has("lag", "2") {
		lag = 2
	}
	if r.has("clip", "off") {
		clip = 0
	}
	if muon := r.has("results", "muon"); muon || r.has("results", "local") {
		inner := "adamw"
		if muon {
			inner = "muon"
		}
		momentum, decay := 0.5, 1.0
		if !r.has("audits", "0") { // audits permit neither an outer momentum nor a residual that does not decay
			momentum, decay = 0, 0.95
		}
		return map[string]any{"LocalSteps": map[string]any{
			"inner_steps": 3, "inner_optimizer": inner, "betas": []float64{0.9, 0.99}, "clip_grad_norm": clip, "outer_momentum": momentum, "error_decay": decay,
			"compression_topk": 16, "compression_chunk": 16, "apply_lag": lag,
		}}
	}
	return map[string]any{"Distro": map[string]any{
		"clip_grad_norm": clip, "compression_decay": 0.9, "compression_topk": 8, "compression_chunk": 16,
		"quantize_1bit": !r.has("results", "values"), "apply_lag": lag,
	}}
}
