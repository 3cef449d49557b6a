package config

import (
	"os"
	"strings"
	"testing"
)

// TestAllThatIsBrokenIsReported breaks rules of several keys of [config] at once.
func TestAllThatIsBrokenIsReported(t *testing.T) {
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	change := func(pairs ...string) string {
		changed := string(text)
		for i := 0; i < len(pairs); i += 2 {
			before, rest, found := strings.Cut(changed, "\n"+pairs[i]+" = ")
			_, after, more := strings.Cut(rest, "\n")
			if !found || !more {
				t.Fatalf("no key %s in\n%s", pairs[i], changed)
			}
			changed = before + "\n" + pairs[i] + " = " + pairs[i+1] + "\n" + after
		}
		return changed
	}
	tests := map[string]struct {
		text string
		want []string // and nothing else, in this order
	}{
		"three rules": {change("cooldown_time", "0", "round_witness_time", "0", "total_steps", "0"),
			[]string{"cooldown_time: must not be 0", "round_witness_time: must not be 0", "total_steps: must not be 0"}},
		"a rule and a key that cannot be read": {change("cooldown_time", "0", "total_steps", "\"many\""),
			[]string{"cooldown_time: must not be 0", "total_steps: want"}},
		"a rule of two keys of which one cannot be read": {change("global_batch_size_start", "9", "global_batch_size_end", "\"x\""),
			[]string{"global_batch_size_end: want"}},
		"a rule and another table": {change("cooldown_time", "0", "max_seq_len", "0"),
			[]string{"cooldown_time: must not be 0", "max_seq_len: 0 is out of range"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseState("s.toml", []byte(test.text))
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			left := len(lines)
			for _, want := range test.want {
				found := false
				for _, line := range lines {
					found = found || strings.Contains(line, want)
				}
				if !found {
					t.Errorf("got:\n%v\nwant: %s", err, want)
				}
				left--
			}
			if left != 0 {
				t.Errorf("%d errors, want %d:\n%v", len(lines), len(test.want), err)
			}
		})
	}
}

// TestOptimizersThatNobodyTrains refuses what the published format knows and clients do not
// train, where it is loaded; what earlier definitions hold can still be read.
func TestOptimizersThatNobodyTrains(t *testing.T) {
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "[model.LLM.optimizer.")
	if !found {
		t.Fatal("the sample has another order")
	}
	for optimizer, want := range map[string]string{
		"[model.LLM.optimizer.AdamW]\nbetas = [0.9, 0.95]\nweight_decay = 0.1\neps = 1e-8\n": "optimizer: AdamW exchanges nothing between members",
		"[model.LLM.optimizer]\nDummy = {}\n":                                                "optimizer: Dummy changes no model that is one",
	} {
		if _, err := ParseState("s.toml", []byte(before+optimizer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	dummy, err := os.ReadFile("testdata/dummy.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseState("s.toml", dummy); err != nil {
		t.Errorf("the dummy model: %v", err)
	}
	definition, err := os.ReadFile("testdata/definition/adamw.json")
	if err != nil {
		t.Fatal(err)
	}
	model, err := DecodeModel(definition)
	if err != nil || model.Optimizer.AdamW == nil || model.Trainable() == nil {
		t.Errorf("an earlier definition: %+v, %v", model.Optimizer, err)
	}
}
