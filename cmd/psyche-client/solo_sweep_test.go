package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// TestSweep trains four combinations, and goes on with them.
func TestSweep(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	save := filepath.Join(t.TempDir(), "sweep")
	line := func(steps string, more ...string) []string {
		return soloLine(model, data, append([]string{"--steps", steps, "--save", save, "--held-out", data, "--sweep", "learning_rate=0.01,0.0001", "--sweep=weight-decay=0,0.1"}, more...)...)
	}
	figures := filepath.Join(t.TempDir(), "figures.jsonl")
	out := succeed(t, line("2", "--metrics-file", figures)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	table := lines[len(lines)-5:]
	if !strings.HasPrefix(table[0], "lr") || !strings.Contains(table[0], "weight-decay  step  loss") || !strings.HasPrefix(table[1], "0.01 ") || strings.Contains(out, "failed") {
		t.Errorf("printed %s", out)
	}
	if _, err := os.Stat(filepath.Join(save, "lr=0.0001_weight-decay=0.1", "config.json")); err != nil {
		t.Error(err)
	}
	if rows, err := os.ReadFile(strings.Replace(figures, ".jsonl", "_lr=0.01_weight-decay=0.jsonl", 1)); err != nil || !strings.Contains(string(rows), "eval/loss/loss") {
		t.Errorf("figures %s, %v", rows, err)
	}
	if _, err := os.Stat("wandb"); err == nil {
		t.Error("it wrote unrequested metrics for Weights & Biases")
	}
	out = succeed(t, line("3", "--eval-every", "1")...)
	if strings.Count(out, "resumed from") != 4 {
		t.Errorf("printed %s", out)
	}
	if out = succeed(t, line("3")...); strings.Count(out, "nothing to do") != 4 || strings.Count(out, "\n0.01 ") != 2 {
		t.Errorf("printed %s", out)
	}
}

func TestEvalEvery(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	events := t.TempDir()
	out := succeed(t, soloLine(model, data, "--steps", "5", "--held-out", data, "--eval-every", "2", "--events-dir", events)...)
	if strings.Count(out, "held-out loss") != 4 {
		t.Errorf("printed %s", out)
	}
	var steps []uint32
	for e, err := range event.Read(filepath.Join(events, eventsFile)) {
		if err != nil {
			t.Fatal(err)
		}
		if body, ok := e.Body.(event.Evaluated); ok && body.Scores[lossTask] > 0 {
			steps = append(steps, body.Step)
		}
	}
	if len(steps) != 4 || steps[0] != 0 || steps[1] != 2 || steps[2] != 4 || steps[3] != 5 {
		t.Errorf("measured after %v", steps)
	}
	fail(t, exitUsage, "nothing held out", soloLine(model, data, "--eval-every", "2")...)
}

func TestSweepsThatAreRefused(t *testing.T) {
	model, data := toy(t)
	for _, test := range [][]string{
		{"no value", "--sweep", "lr"},
		{"unknown flag", "--sweep", "nothing=1,2"},
		{"folder", "--sweep", "save=a,b"},
		{"one flag twice", "--sweep", "lr=1,2", "--sweep", "learning-rate=3"},
		{"one value twice", "--sweep", "lr=1,1"},
		{"72 trainings", "--sweep", "lr=1,2,3,4,5,6,7,8,9", "--sweep", "eps=1,2,3,4,5,6,7,8"},
		{"no folder", "--sweep", "lr=1,2"},
		{"batch of 0", "--sweep", "total-batch=2,0", "--save", filepath.Join(t.TempDir(), "sweep")},
		{"batch in words", "--sweep", "total-batch=2,many", "--save", filepath.Join(t.TempDir(), "sweep")},
	} {
		fail(t, exitUsage, test[0], soloLine(model, data, test[1:]...)...)
	}
}
