package config

import (
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

// TestEveryBrokenRuleIsReported checks that one error reports several broken rules of [config].
func TestEveryBrokenRuleIsReported(t *testing.T) {
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
	for name, text := range map[string]string{
		"three rules":                                    change("cooldown_time", "0", "round_witness_time", "0", "total_steps", "0"),
		"a rule and a key that cannot be read":           change("cooldown_time", "0", "total_steps", "\"many\""),
		"a rule of two keys of which one cannot be read": change("global_batch_size_start", "9", "global_batch_size_end", "\"x\""),
		"a rule and another table":                       change("cooldown_time", "0", "max_seq_len", "0"),
	} {
		_, err := ParseState("s.toml", []byte(text))
		golden.Message(t, name, err)
	}
}

// TestUnsupportedOptimizersAreRefused checks that loading a file refuses optimizers that the
// published format contains but clients cannot train. Earlier definitions with such an optimizer
// remain readable.
func TestUnsupportedOptimizersAreRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "[model.LLM.optimizer.")
	if !found {
		t.Fatal("the sample has an unexpected order")
	}
	for name, optimizer := range map[string]string{
		"AdamW": "[model.LLM.optimizer.AdamW]\nbetas = [0.9, 0.95]\nweight_decay = 0.1\neps = 1e-8\n",
		"Dummy": "[model.LLM.optimizer]\nDummy = {}\n",
	} {
		_, err := ParseState("s.toml", []byte(before+optimizer))
		golden.Message(t, name, err)
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
