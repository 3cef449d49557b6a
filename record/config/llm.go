package config

import (
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Maximum sizes of the strings in a model definition, in bytes, and of its lists.
const (
	maxName      = 64  // repositories, buckets, server addresses, URL templates
	maxURL       = 192 // addresses, folders, prefixes
	maxLocations = 8
	maxURLs      = 64 // of one location
	maxSeqLen    = 1 << 24
)

// readModel reads [model.LLM]. Files in an older format have some of its keys in
// [model_extra_data]. extra is that table, or nil. c determines the tokens of a round.
func readModel(llm, extra *table, c coordinator.Config) Model {
	// in returns the table that contains a key.
	in := func(key string) *table {
		if extra == nil || !extra.has(key) {
			return llm
		}
		if llm.has(key) {
			extra.fail(key, "is also in %s; keep one of them", llm.name())
		}
		return extra
	}
	model := Model{
		Architecture:         oneOf(in("architecture"), "architecture", HfLlama, HfDeepseek, HfAuto, Torchtitan),
		DataType:             oneOf(in("data_type"), "data_type", Pretraining, Finetuning),
		MaxSeqLen:            number[uint32](llm, "max_seq_len"),
		ColdStartWarmupSteps: numberOr[uint32](llm, "cold_start_warmup_steps", 0),
		Optimizer:            readOptimizer(in("optimizer")),
		Checkpoint:           readCheckpoint(in("checkpoint")),
	}
	model.LRSchedule = readLRSchedule(in("lr_schedule"), batches{Config: c, seqLen: model.MaxSeqLen})
	if in("data_location") == in("data_locations") {
		model.DataLocations = readDataLocations(in("data_location"))
	} else if extra.has("data_location") && llm.has("data_locations") || extra.has("data_locations") && llm.has("data_location") {
		extra.document.fail(extra.path, "data locations are in %s and in %s; keep one of them", llm.name(), extra.name())
	} else if extra.has("data_location") || extra.has("data_locations") {
		model.DataLocations = readDataLocations(extra)
	}
	if _, ok := llm.values["max_seq_len"].(int64); ok && (model.MaxSeqLen == 0 || model.MaxSeqLen > maxSeqLen) {
		llm.fail("max_seq_len", "%d is out of range, want 1 to %d", model.MaxSeqLen, maxSeqLen)
	}
	if llm.has("checkpoint_source") {
		oneOf(llm, "checkpoint_source", "Stored")
	}
	llm.done()
	if extra != nil {
		extra.done()
	}
	return model
}

// readOptimizer reads optimizer.
func readOptimizer(t *table) Optimizer {
	chosen, ok := t.variant("optimizer", "Distro", "AdamW", "LocalSteps", "Dummy")
	if !ok {
		return Optimizer{}
	}
	if chosen.name == "Dummy" {
		return Optimizer{Dummy: &Dummy{}}
	}
	v, ok := chosen.body()
	if !ok {
		return Optimizer{}
	}
	defer v.done()
	failed := len(v.problems)
	var optimizer Optimizer
	switch chosen.name {
	case "AdamW":
		optimizer.AdamW = &AdamW{
			Betas:        readBetas(v),
			WeightDecay:  v.float("weight_decay"),
			Eps:          v.float("eps"),
			ClipGradNorm: v.floatOr("clip_grad_norm", 0),
		}
	case "LocalSteps":
		optimizer.LocalSteps = readLocalSteps(v)
	default:
		optimizer.Distro = &Distro{
			ClipGradNorm:     v.floatOr("clip_grad_norm", 0),
			WeightDecay:      v.floatOr("weight_decay", 0),
			CompressionDecay: v.float("compression_decay"),
			CompressionTopK:  number[uint16](v, "compression_topk"),
			CompressionChunk: number[uint16](v, "compression_chunk"),
			Quantize1Bit:     v.bool("quantize_1bit"),
			ApplyLag:         numberOr[uint8](v, "apply_lag", 0),
			Lookahead:        v.has("lookahead") && v.bool("lookahead"),
		}
		if v.has("apply_lag") && optimizer.Distro.ApplyLag == 0 {
			v.fail("apply_lag", "0 is out of range, want 1 or 2")
		}
	}
	v.report(failed, optimizer.check())
	return optimizer
}

func readLocalSteps(v *table) *LocalSteps {
	l := &LocalSteps{
		InnerSteps:       number[uint16](v, "inner_steps"),
		Betas:            readBetas(v),
		WeightDecay:      v.floatOr("weight_decay", 0),
		Eps:              v.floatOr("eps", 1e-8),
		ClipGradNorm:     v.floatOr("clip_grad_norm", 0),
		OuterLR:          v.floatOr("outer_lr", 1),
		OuterMomentum:    v.floatOr("outer_momentum", 0),
		CompressionTopK:  number[uint16](v, "compression_topk"),
		CompressionChunk: number[uint16](v, "compression_chunk"),
		ValueBits:        numberOr[uint8](v, "value_bits", 2),
		ErrorDecay:       v.floatOr("error_decay", 1),
		ApplyLag:         numberOr[uint8](v, "apply_lag", 0),
	}
	if v.has("apply_lag") && l.ApplyLag == 0 {
		v.fail("apply_lag", "0 is out of range, want 1 or 2")
	}
	if inner := v.textOr("inner_optimizer", AdamWName, maxName); inner != AdamWName {
		l.InnerOptimizer = inner
	}
	return l
}

func readBetas(v *table) [2]float64 {
	var betas [2]float64
	value, ok := v.required("betas")
	if !ok {
		return betas
	}
	numbers, ok := value.([]any)
	if !ok || len(numbers) != len(betas) {
		v.fail("betas", "want two numbers, as in [0.9, 0.95]")
		return betas
	}
	for i, number := range numbers {
		betas[i] = v.toFloat("betas", number)
	}
	return betas
}

// readCheckpoint reads checkpoint.
func readCheckpoint(t *table) Checkpoint {
	if source, ok := t.values["checkpoint"].(string); ok && source == "Ephemeral" {
		t.has("checkpoint")
		t.fail("checkpoint", "an Ephemeral model cannot be joined, because members cannot load it; use Hub, Gcs or Local")
		return Checkpoint{}
	}
	chosen, ok := t.variant("checkpoint", "Hub", "P2P", "Gcs", "P2PGcs", "Local", "Dummy")
	if !ok {
		return Checkpoint{}
	}
	v, ok := chosen.body()
	if !ok {
		return Checkpoint{}
	}
	defer v.done()
	switch chosen.name {
	case "Hub":
		return Checkpoint{Hub: readHubRepo(v)}
	case "P2P":
		return Checkpoint{P2P: readHubRepo(v)}
	case "Gcs":
		return Checkpoint{Gcs: readGcsRepo(v)}
	case "P2PGcs":
		return Checkpoint{P2PGcs: readGcsRepo(v)}
	case "Local":
		return Checkpoint{Local: &LocalCheckpoint{Path: v.nonEmpty("path", maxURL)}}
	default:
		return Checkpoint{Dummy: &HubRepo{RepoID: v.text("repo_id", maxName), Revision: v.textOr("revision", "", maxName)}}
	}
}

func readHubRepo(v *table) *HubRepo {
	return &HubRepo{RepoID: v.nonEmpty("repo_id", maxName), Revision: v.textOr("revision", "", maxName)}
}

func readGcsRepo(v *table) *GcsRepo {
	repo := &GcsRepo{Bucket: v.nonEmpty("bucket", maxName), Prefix: v.textOr("prefix", "", maxURL)}
	if len(repo.Bucket)+len(repo.Prefix) > coordinator.MaxRepoLength {
		v.fail("prefix", "bucket and prefix together are longer than %d bytes", coordinator.MaxRepoLength)
	}
	return repo
}

// hasPlaceholder reports whether a URL template has exactly one {}.
func hasPlaceholder(template string) bool { return strings.Count(template, "{}") == 1 }
