package coordinator

import (
	"errors"
	"testing"
)

// TestContinuedRunStartsCold begins a run with the progress of another one.
func TestContinuedRunStartsCold(t *testing.T) {
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel(), Progress: Progress{Epoch: 3, Step: 10, DataIndex: 72}}
	genesis.Model.ColdStartWarmupSteps = 2
	r := newRunOf(t, genesis, "a", "b", "c")
	if !r.Epoch.ColdStart || r.Epoch.StartStep != 10 || len(r.Lapses) != 0 {
		t.Errorf("it does not go on cold:\n%s", r.String())
	}
	if n, d := r.LearningRateScale(11); n != 1 || d != 2 {
		t.Errorf("learning rate scaled by %d/%d, want 1/2", n, d)
	}
	r.finishEpoch("x")
	r.startTraining()
	if r.Epoch.ColdStart {
		t.Error("the second epoch is cold as well")
	}
	for _, wrong := range []Progress{{Step: 102}, {Epoch: 5, Step: 5}, {Step: 2, DataIndex: 1 << 40}, {Epoch: 1}} {
		genesis.Progress = wrong
		if _, err := genesis.State(); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestFullListOfUploads makes room only for a later checkpoint.
func TestFullListOfUploads(t *testing.T) {
	r := newRun(t, testConfig(), "a", "b", "c", "d", "e", "f")
	at := func(step uint32, digest string) ReportUpload {
		return ReportUpload{Step: step, Digest: clientID(digest), Place: Place{Kind: CheckpointGcs, Repo: "bucket"}}
	}
	r.finishEpoch("x")
	for _, name := range []string{"a", "b", "c", "d"} {
		r.must(name, at(2, "x"))
	}
	if err := r.CheckUpload(clientID("e"), at(2, "x")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	r.startTraining()
	r.finishEpoch("y")
	r.must("e", at(4, "y"))
	if len(r.Uploads) != MaxUploads || r.Uploads[0].Reporter != clientID("b") || r.Uploads[3].Reporter != clientID("e") {
		t.Errorf("uploads:\n%s", r.String())
	}
	if found := r.UploadsOf(clientID("x")); len(found) != 3 || found[0].Reporter != clientID("b") {
		t.Errorf("of the first checkpoint: %+v", found)
	}
}
