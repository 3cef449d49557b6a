package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

const localTable = `[model.LLM.optimizer.LocalSteps]
inner_steps = 50
betas = [0.9, 0.99]
clip_grad_norm = 1.0
compression_topk = 16
compression_chunk = 32
`

// withOptimizer returns the sample server.toml with a different optimizer and with replaced pairs
// of text.
func withOptimizer(t *testing.T, optimizer string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "[model.LLM.optimizer.")
	if !found {
		t.Fatal("the sample has an unexpected order")
	}
	return strings.NewReplacer(pairs...).Replace(before) + optimizer
}

func TestLocalSteps(t *testing.T) {
	run, err := ParseState("s.toml", []byte(withOptimizer(t, localTable)))
	if err != nil {
		t.Fatal(err)
	}
	want := LocalSteps{
		InnerSteps: 50, Betas: [2]float64{0.9, 0.99}, Eps: 1e-8, ClipGradNorm: 1,
		OuterLR: 1, CompressionTopK: 16, CompressionChunk: 32, ValueBits: 2, ErrorDecay: 1,
	}
	if got := run.Model.Optimizer.LocalSteps; got == nil || *got != want || got.Lag() != 1 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	encoded, err := EncodeModel(run.Model)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeModel(encoded)
	if err != nil || *again.Optimizer.LocalSteps != want {
		t.Errorf("decoded %+v, error %v", again.Optimizer, err)
	}
	golden.Message(t, "warnings", errors.New(strings.Join(run.Warnings, "\n")))
}

// TestInnerOptimizer checks that the default is AdamW, and that the default is not encoded.
func TestInnerOptimizer(t *testing.T) {
	for key, want := range map[string]string{"": "", `inner_optimizer = "adamw"`: "", `inner_optimizer = "muon"`: Muon} {
		run, err := ParseState("s.toml", []byte(withOptimizer(t, localTable+key)))
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := EncodeModel(run.Model)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeModel(encoded)
		if err != nil || again.Optimizer.LocalSteps.InnerOptimizer != want || strings.Contains(string(encoded), "InnerOptimizer") != (want != "") {
			t.Errorf("%s: %s, error %v", key, encoded, err)
		}
	}
}

func TestLocalStepsRefused(t *testing.T) {
	for _, change := range []string{
		"inner_steps = 50>inner_steps = 0",
		"inner_steps = 50>inner_step = 50",
		"compression_topk = 16>compression_topk = 0",
		"compression_chunk = 32>compression_chunk = 129",
		"clip_grad_norm = 1.0>value_bits = 5",
		"clip_grad_norm = 1.0>inner_optimizer = 'sgd'",
		"clip_grad_norm = 1.0>outer_lr = 0.0",
		"clip_grad_norm = 1.0>outer_lr = 2.5",
		"clip_grad_norm = 1.0>error_decay = 1.5",
		"clip_grad_norm = 1.0>apply_lag = 3",
		"clip_grad_norm = 1.0>apply_lag = 0",
		"clip_grad_norm = 1.0>eps = -1.0",
		"betas = [0.9, 0.99]>betas = [0.9, 1.0]",
		"verification_percent = 0>verification_percent = 30",
		"LocalSteps]>LocalStep]",
	} {
		from, to, _ := strings.Cut(change, ">")
		text := withOptimizer(t, localTable)
		if !strings.Contains(text, from) {
			t.Fatalf("the sample has no %q", from)
		}
		_, err := ParseState("s.toml", []byte(strings.Replace(text, from, to, 1)))
		golden.Message(t, change, err)
	}
}

// TestLocalStepsWithAudits checks that a run with audits refuses the settings that audits cannot
// verify, and only these.
func TestLocalStepsWithAudits(t *testing.T) {
	for table, ok := range map[string]bool{
		"error_decay = 0.95\n":                       true,
		"error_decay = 0.95\nouter_momentum = 0.5\n": false,
		"outer_momentum = 0.0\n":                     false,
	} {
		text := withOptimizer(t, localTable+table, "verification_percent = 0", "verification_percent = 30")
		if _, err := ParseState("s.toml", []byte(text)); !ok {
			golden.Message(t, table, err)
		} else if err != nil {
			t.Errorf("with %q: %v", table, err)
		}
	}
}
