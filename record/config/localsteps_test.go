package config

import (
	"os"
	"strings"
	"testing"
)

const localTable = `[model.LLM.optimizer.LocalSteps]
inner_steps = 50
betas = [0.9, 0.99]
clip_grad_norm = 1.0
compression_topk = 16
compression_chunk = 32
`

// withOptimizer returns the sample of a server's file with another optimizer, and pairs of text replaced.
func withOptimizer(t *testing.T, optimizer string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "[model.LLM.optimizer.")
	if !found {
		t.Fatal("the sample has another order")
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
	if len(run.Warnings) == 0 || !strings.Contains(run.Warnings[len(run.Warnings)-1], "a step takes at least one") {
		t.Errorf("warnings %q, want one of too few sequences", run.Warnings)
	}
}

// TestInnerOptimizer: AdamW is what a run has that names none, and is not written down.
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
	for change, want := range map[string]string{
		"inner_steps = 50>inner_steps = 0":                   "inner_steps: is 0",
		"inner_steps = 50>inner_step = 50":                   "inner_steps",
		"compression_topk = 16>compression_topk = 0":         "compression_topk: is 0",
		"compression_chunk = 32>compression_chunk = 129":     "compression_chunk: 129 is out of range",
		"clip_grad_norm = 1.0>value_bits = 5":                "value_bits: 5 is out of range",
		"clip_grad_norm = 1.0>inner_optimizer = 'sgd'":       `inner_optimizer: "sgd" is not known, want "adamw" or "muon"`,
		"clip_grad_norm = 1.0>outer_lr = 0.0":                "outer_lr: 0 is out of range",
		"clip_grad_norm = 1.0>outer_lr = 2.5":                "outer_lr: 2.5 is out of range",
		"clip_grad_norm = 1.0>error_decay = 1.5":             "error_decay: 1.5 is out of range",
		"clip_grad_norm = 1.0>apply_lag = 3":                 "apply_lag: 3 is out of range",
		"clip_grad_norm = 1.0>apply_lag = 0":                 "apply_lag: want 1 or 2",
		"clip_grad_norm = 1.0>eps = -1.0":                    "eps: -1 is out of range",
		"betas = [0.9, 0.99]>betas = [0.9, 1.0]":             "betas: 1 is out of range",
		"verification_percent = 0>verification_percent = 30": "set error_decay below 1",
		"LocalSteps]>LocalStep]":                             "LocalSteps",
	} {
		from, to, _ := strings.Cut(change, ">")
		text := withOptimizer(t, localTable)
		if !strings.Contains(text, from) {
			t.Fatalf("the sample has no %q", from)
		}
		if _, err := ParseState("s.toml", []byte(strings.Replace(text, from, to, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %q", change, err, want)
		}
	}
}

// TestLocalStepsWithAudits: what an audit cannot follow is refused with them, and the rest is not.
func TestLocalStepsWithAudits(t *testing.T) {
	for table, want := range map[string]string{
		"error_decay = 0.95\n":                       "",
		"error_decay = 0.95\nouter_momentum = 0.5\n": "set outer_momentum = 0",
		"outer_momentum = 0.0\n":                     "set error_decay below 1",
	} {
		text := withOptimizer(t, localTable+table, "verification_percent = 0", "verification_percent = 30")
		if _, err := ParseState("s.toml", []byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: error %v, want one about %q", table, err, want)
		}
	}
}
