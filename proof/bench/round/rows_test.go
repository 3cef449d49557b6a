package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/config"
)

// TestRowsAreRuns checks that every row of rows.toml makes a valid state.toml of the base settings.
func TestRowsAreRuns(t *testing.T) {
	rows, err := readRows("rows.toml")
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.ReadFile("../distro.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Batch == 0 {
			r.Batch = sequencesFor(r.TrainSeconds, 0.1, clientCount)
		}
		text, err := testbed.Override(base, r.settings(nil))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "state.toml")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		run, err := config.LoadState(path)
		if err != nil {
			t.Fatalf("%s: %v\n%s", r.Name, err, text)
		}
		if int(run.Config.TotalSteps) != r.Rounds+2 || int(run.Config.GlobalBatchSizeEnd) != r.Batch {
			t.Errorf("%s: %d rounds of %d sequences, want %d of %d", r.Name, run.Config.TotalSteps, run.Config.GlobalBatchSizeEnd, r.Rounds+2, r.Batch)
		}
		if lag := run.Model.Optimizer.Distro.Lag(); strings.Contains(r.Name, "lag 2") != (lag == 2) {
			t.Errorf("%s: apply_lag is %d", r.Name, lag)
		}
	}
}

func TestBadRows(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"no name", "[[row]]\nrounds = 1\nbatch = 3"},
		{"no rounds", "[[row]]\nname = 'a'\nbatch = 3"},
		{"no batch", "[[row]]\nname = 'a'\nrounds = 1"},
		{"both", "[[row]]\nname = 'a'\nrounds = 1\nbatch = 3\ntrain_seconds = 1.0"},
		{"negative batch", "[[row]]\nname = 'a'\nrounds = 1\nbatch = -3"},
		{"long", "[[row]]\nname = 'a'\nrounds = 1\ntrain_seconds = 600.0"},
		{"far", "[[row]]\nname = 'a'\nrounds = 1\nbatch = 3\ndelay = '1h'"},
		{"fast", "[[row]]\nname = 'a'\nrounds = 1\nbatch = 3\nmbits = 10"},
		{"no duration", "[[row]]\nname = 'a'\nrounds = 1\nbatch = 3\ndelay = 'x'"},
		{"unknown key", "[[row]]\nname = 'a'\nrounds = 1\nbatch = 3\nlag = 2"},
	} {
		path := filepath.Join(t.TempDir(), "rows.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := readRows(path)
		golden.Message(t, c.name, err)
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]any{"config.a=0.2": 0.2, "a=2": int64(2), `a="x=y"`: "x=y"} {
		if _, value, err := parseSetting(text); err != nil || value != want {
			t.Errorf("%s is %v, %v; want %v", text, value, err, want)
		}
	}
	for _, text := range []string{"a", "=1", "a=", "a=1 2"} {
		if _, value, err := parseSetting(text); err == nil {
			t.Errorf("%q is %v, want an error", text, value)
		}
	}
	if _, err := testbed.Override([]byte("[a]\nb = 1"), map[string]any{"c.d": 1}); err == nil {
		t.Error("a key of a missing table was set")
	}
	if got := sequencesFor(5, 0.1, 3); got != 150 {
		t.Errorf("5 s at 0.1 s per sequence and client are %d sequences, want 150", got)
	}
}
