package config

import (
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
)

// readLRSchedule reads lr_schedule. The file gives the length of each period in rounds or in tokens,
// but a definition contains only rounds, so members need not convert tokens.
func readLRSchedule(t *table, b batches) LRSchedule {
	chosen, ok := t.variant("lr_schedule", "Constant", "Linear", "Cosine", "WarmupStableDecay")
	if !ok {
		return LRSchedule{}
	}
	v, ok := chosen.body()
	if !ok {
		return LRSchedule{}
	}
	defer v.done()
	failed := len(v.problems)
	base, initial := v.float("base_lr"), v.float("warmup_init_lr")
	p := periods{table: v, batches: b}
	warmup := p.read("warmup_steps", "warmup_tokens", 0)
	var schedule LRSchedule
	switch chosen.name {
	case "Constant":
		schedule.Constant = &ConstantLR{BaseLR: base, WarmupSteps: warmup, WarmupInitLR: initial}
	case "Linear":
		schedule.Linear = &LinearLR{
			BaseLR: base, WarmupSteps: warmup, WarmupInitLR: initial,
			TotalSteps: p.total(warmup), FinalLR: v.float("final_lr"),
		}
	case "Cosine":
		schedule.Cosine = &CosineLR{
			BaseLR: base, WarmupSteps: warmup, WarmupInitLR: initial,
			TotalSteps: p.total(warmup), FinalLR: v.float("final_lr"),
		}
	default:
		w := &WarmupStableDecayLR{BaseLR: base, WarmupSteps: warmup, WarmupInitLR: initial}
		schedule.WarmupStableDecay = w
		w.StableSteps = p.read("stable_steps", "stable_tokens", uint64(warmup))
		w.CosineDecaySteps = p.read("cosine_decay_steps", "cosine_decay_tokens", uint64(warmup)+uint64(w.StableSteps))
		w.CosineDecayFinalLR = v.float("cosine_decay_final_lr")
		w.LinearDecaySteps = p.read("linear_decay_steps", "linear_decay_tokens", uint64(warmup)+uint64(w.StableSteps)+uint64(w.CosineDecaySteps))
		w.LinearDecayFinalLR = v.float("linear_decay_final_lr")
	}
	v.report(failed, schedule.check())
	return schedule
}

// periods reads the lengths of a schedule's periods.
type periods struct {
	*table
	batches batches
}

// read returns the number of rounds of a period that begins after the first begun rounds of the run.
// The table has the number under the key steps, or the period's number of tokens under the key tokens.
func (p *periods) read(steps, tokens string, begun uint64) uint32 {
	if !p.has(tokens) {
		return number[uint32](p.table, steps)
	}
	if p.has(steps) {
		p.fail(tokens, "%s is also set; set only one of them", steps)
		return 0
	}
	failed := len(p.problems)
	count := number[uint64](p.table, tokens)
	if len(p.problems) > failed {
		return 0
	}
	rounds, problem := p.batches.rounds(begun, count)
	if problem != "" {
		p.fail(tokens, "%s", problem)
	}
	return rounds
}

// total reads the end of a decay, counted from the beginning of the run.
func (p *periods) total(warmup uint32) uint32 {
	failed := len(p.problems)
	rounds := p.read("total_steps", "total_tokens", 0)
	if p.has("total_tokens") && rounds <= warmup && len(p.problems) == failed {
		p.fail("total_tokens", "the run has read these tokens after %d rounds, not after the warm-up of %d rounds; want more tokens", rounds, warmup)
	}
	return rounds
}

// batches determines how many tokens a run reads in each round.
type batches struct {
	coordinator.Config
	seqLen uint32
}

// maxGrowing is the maximum number of rounds, in the growth of the batch, that rounds computes one by
// one.
const maxGrowing = 1 << 20

// rounds returns the number of rounds, after the first begun rounds of a run, in which the run reads a
// number of tokens. The last round may read more. If there is no such number, problem is the reason.
func (b batches) rounds(begun, tokens uint64) (count uint32, problem string) {
	if b.seqLen == 0 || b.GlobalBatchSizeStart == 0 || b.GlobalBatchSizeEnd < b.GlobalBatchSizeStart {
		return 0, "tokens need a valid max_seq_len, global_batch_size_start and global_batch_size_end; correct these keys, or set the number of rounds"
	}
	wanted := tokens / uint64(b.seqLen) // sequences
	if tokens%uint64(b.seqLen) != 0 {
		wanted++
	}
	var step, index, first uint64 // rounds and sequences so far; sequences before the period
	for ; ; step++ {
		if step == begun {
			first = index
		}
		if step >= begun && index-first >= wanted {
			return uint32(step - begun), ""
		}
		size := uint64(b.BatchSize(index, b.seqLen))
		if size == uint64(b.GlobalBatchSizeEnd) {
			break // the batch does not grow any more
		}
		if step == maxGrowing {
			return 0, "the batch grows for too many rounds; lower global_batch_size_warmup_tokens, or set the number of rounds"
		}
		index += size
	}
	grown := uint64(0) // rounds of the period so far
	if step > begun {
		grown = step - begun
		wanted -= index - first
	}
	size := uint64(b.GlobalBatchSizeEnd)
	rest := wanted / size
	if wanted%size != 0 {
		rest++
	}
	if rest > math.MaxUint32-grown {
		return 0, "more rounds than a run can have; want fewer tokens"
	}
	return uint32(grown + rest), ""
}
