package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"pgregory.net/rapid"
)

// TestRoundsOfTokens compares rounds with a count of every round.
func TestRoundsOfTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint32Range(1, 20).Draw(t, "start")
		b := batches{seqLen: rapid.Uint32Range(1, 9).Draw(t, "length"), Config: coordinator.Config{
			GlobalBatchSizeStart: start, GlobalBatchSizeEnd: start + rapid.Uint32Range(0, 20).Draw(t, "growth"),
			GlobalBatchSizeWarmupTokens: rapid.Uint64Range(0, 3000).Draw(t, "warmup"),
		}}
		begun, tokens := rapid.Uint64Range(0, 200).Draw(t, "begun"), rapid.Uint64Range(0, 5000).Draw(t, "tokens")
		var index, read uint64
		want := uint32(0)
		for step := uint64(0); step < begun || read < tokens; step++ {
			size := uint64(b.BatchSize(index, b.seqLen))
			if index += size; step >= begun {
				read += size * uint64(b.seqLen)
				want++
			}
		}
		if got, problem := b.rounds(begun, tokens); got != want || problem != "" {
			t.Fatalf("%d rounds (%s), want %d", got, problem, want)
		}
	})
}

func TestRoundsOfTokensFail(t *testing.T) {
	config := func(start, end uint32, warmup uint64) coordinator.Config {
		return coordinator.Config{GlobalBatchSizeStart: start, GlobalBatchSizeEnd: end, GlobalBatchSizeWarmupTokens: warmup}
	}
	for name, test := range map[string]struct {
		batches
		tokens uint64
		want   string
	}{
		"no length":     {batches{config(1, 1, 0), 0}, 1, "max_seq_len"},
		"no sequences":  {batches{config(0, 0, 0), 1}, 1, "global_batch_size_start"},
		"shrinks":       {batches{config(2, 1, 0), 1}, 1, "global_batch_size_end"},
		"too many":      {batches{config(1, 1, 0), 1}, 1 << 32, "more rounds than a run can have"},
		"slow growth":   {batches{config(1, 9, 1<<63), 1}, 1 << 40, "global_batch_size_warmup_tokens"},
		"largest count": {batches{config(1, 9, 50), 1}, 1<<64 - 1, "more rounds than a run can have"},
	} {
		if n, problem := test.rounds(0, test.tokens); n != 0 || !strings.Contains(problem, test.want) {
			t.Errorf("%s: %d rounds, %q", name, n, problem)
		}
	}
}

// TestLRScheduleInTokens reads schedules whose periods are in tokens. A round has 12 sequences of 256
// tokens (3,072 tokens), except in the rows with a growing batch.
func TestLRScheduleInTokens(t *testing.T) {
	const stable = "[model.LLM.lr_schedule.WarmupStableDecay]\nbase_lr = 1.0e-3\nwarmup_init_lr = 0.0\ncosine_decay_final_lr = 1.0e-3\nlinear_decay_final_lr = 5.0e-5\n"
	const cosine = "[model.LLM.lr_schedule.Cosine]\nbase_lr = 1.0e-3\nwarmup_init_lr = 0.0\nfinal_lr = 1.0e-4\n"
	for _, test := range []struct {
		name, schedule string
		growth         string // global_batch_size_end and global_batch_size_warmup_tokens
		want           string // steps, or a part of the error
	}{
		{"whole rounds", stable + "warmup_tokens = 30720\nstable_tokens = 61440\ncosine_decay_tokens = 0\nlinear_decay_tokens = 30720", "", "[10 20 0 10]"},
		{"parts of rounds", stable + "warmup_tokens = 1\nstable_tokens = 3073\ncosine_decay_tokens = 3072\nlinear_decay_tokens = 9000", "", "[1 2 1 3]"},
		{"mixed", stable + "warmup_steps = 10\nstable_tokens = 61440\ncosine_decay_steps = 0\nlinear_decay_tokens = 30720", "", "[10 20 0 10]"},
		{"growing batch", stable + "warmup_tokens = 30720\nstable_tokens = 61440\ncosine_decay_tokens = 0\nlinear_decay_tokens = 30720", "48 30720", "[6 5 0 3]"},
		{"cosine", cosine + "warmup_tokens = 30720\ntotal_tokens = 307200", "", "[10 100]"},
		{"cosine, too short", cosine + "warmup_tokens = 30720\ntotal_tokens = 30720", "", "lr_schedule.Cosine] total_tokens: the run has read these tokens after 10 rounds"},
		{"both", cosine + "warmup_tokens = 30720\nwarmup_steps = 9\ntotal_steps = 10", "", "lr_schedule.Cosine] warmup_tokens: warmup_steps is also set"},
		{"neither", cosine + "total_tokens = 1", "", "missing key \"warmup_steps\""},
		{"negative", cosine + "warmup_tokens = -1\ntotal_tokens = 1", "", "warmup_tokens: -1 is out of range"},
		{"too many", cosine + "warmup_tokens = 0\ntotal_tokens = 9223372036854775807", "", "total_tokens: more rounds than a run can have"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := os.ReadFile("../../configs/quickstart/state.toml")
			if err != nil {
				t.Fatal(err)
			}
			text := string(file)
			i := strings.Index(text, "[model.LLM.lr_schedule")
			j := strings.Index(text, "[model.LLM.optimizer")
			text = text[:i] + test.schedule + "\n\n" + text[j:]
			if end, tokens, grows := strings.Cut(test.growth, " "); grows {
				text = strings.Replace(text, "global_batch_size_end = 12", "global_batch_size_end = "+end, 1)
				text = strings.Replace(text, "global_batch_size_warmup_tokens = 0", "global_batch_size_warmup_tokens = "+tokens, 1)
			}
			run, err := ParseState("state.toml", []byte(text))
			got := fmt.Sprint(err)
			if s := run.Model.LRSchedule; err == nil && s.WarmupStableDecay != nil {
				w := s.WarmupStableDecay
				got = fmt.Sprint([]uint32{w.WarmupSteps, w.StableSteps, w.CosineDecaySteps, w.LinearDecaySteps})
			} else if err == nil {
				got = fmt.Sprint([]uint32{s.Cosine.WarmupSteps, s.Cosine.TotalSteps})
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
