package coordinator

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestContinuedRunStartsCold checks a new run that starts with the progress of an earlier run.
func TestContinuedRunStartsCold(t *testing.T) {
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel(), Progress: Progress{Epoch: 3, Step: 10, DataIndex: 72}}
	genesis.Model.ColdStartWarmupSteps = 2
	r := newRunOf(t, genesis, "a", "b", "c")
	if !r.Epoch.ColdStart || r.Epoch.StartStep != 10 || len(r.RollbackGaps) != 0 {
		t.Errorf("the epoch does not start cold:\n%s", r.String())
	}
	r.finishEpoch("x")
	r.startTraining()
	if r.Epoch.ColdStart {
		t.Error("the second epoch is cold as well")
	}
	for _, wrong := range []Progress{{Step: 102}, {Epoch: 5, Step: 5}, {Step: 2, DataIndex: 1 << 40}, {Epoch: 1}} {
		genesis.Progress = wrong
		if _, err := genesis.State(); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%+v: got %v; want error ErrInvalidConfig", wrong, err)
		}
	}
}

// uploadOf returns a report of a checkpoint.
func uploadOf(step uint32, digest, bucket string) ReportUpload {
	return ReportUpload{Step: step, Digest: clientID(digest), Place: Location{Kind: CheckpointGcs, Repo: bucket}}
}

// TestFullListOfUploads checks that a later checkpoint replaces an entry if its reporter has left
// or if the run has forgotten its checkpoint.
func TestFullListOfUploads(t *testing.T) {
	r := newRun(t, testConfig(), "a", "b", "c", "d", "e", "f")
	r.finishEpoch("x")
	for _, name := range []string{"a", "b", "c", "d"} {
		r.must(name, uploadOf(2, "x", "bucket"))
	}
	if err := r.CheckUpload(clientID("e"), uploadOf(2, "x", "bucket")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	r.startTraining()
	r.finishEpoch("y")
	if err := r.CheckUpload(clientID("e"), uploadOf(4, "y", "bucket")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v for a later checkpoint, want ErrFull: the reporters are still present", err)
	}
	r.must("b", Withdraw{Client: clientID("b")})
	if err := r.CheckUpload(clientID("e"), uploadOf(2, "x", "bucket")); !errors.Is(err, ErrFull) {
		t.Errorf("got %v for the same checkpoint as the absent one's, want ErrFull", err)
	}
	r.must("e", uploadOf(4, "y", "bucket"))
	reporters := func() (names string) {
		for _, u := range r.Uploads {
			names += nameOf(u.Reporter)
		}
		return names
	}
	if reporters() != "acde" {
		t.Errorf("reports of %s, want acde", reporters())
	}
	if found := r.UploadsOf(clientID("x")); len(found) != 3 || found[0].Reporter != clientID("a") {
		t.Errorf("of the first checkpoint: %+v", found)
	}
	for i := range MaxEarlier {
		r.startTraining()
		r.finishEpoch("z" + strconv.Itoa(i))
	}
	last := "z" + strconv.Itoa(MaxEarlier-1)
	r.must("f", uploadOf(r.Model.Checkpoint.Step, last, "bucket"))
	if reporters() != "cdef" {
		t.Errorf("reports of %s, want cdef: the first checkpoint is forgotten", reporters())
	}
}

// TestNewMembersCannotTakeAllUploadSlots checks newer members that report every checkpoint first.
// They fill the list of uploads, but do not replace other entries.
func TestNewMembersCannotTakeAllUploadSlots(t *testing.T) {
	config := testConfig()
	config.ProbationSteps = 1
	r := newRun(t, config, "a", "b", "c", "old", "older")
	r.finishEpoch("x")
	r.must("old", uploadOf(2, "x", "honest"))
	for i := range 8 {
		r.join("false" + strconv.Itoa(i))
	}
	var reporters []string
	digest := "x"
	for epoch := range 8 {
		r.startTraining()
		digest = "y" + strconv.Itoa(epoch)
		r.finishEpoch(digest)
		reporters = reporters[:0]
		for i := range r.Pending {
			if name := nameOf(r.Pending[i].ID); strings.HasPrefix(name, "false") && !r.Pending[i].isNew() {
				reporters = append(reporters, name)
				_ = r.Apply(clientID(name), r.nonce+100, uploadOf(r.Model.Checkpoint.Step, digest, "nowhere"))
				r.nonce += 100
			}
		}
	}
	if len(reporters) < 5 {
		t.Fatalf("%d false reporters are members, want more than the list can contain", len(reporters))
	}
	if !slices.ContainsFunc(r.Uploads, func(u Upload) bool { return u.Reporter == clientID("old") }) {
		t.Fatalf("newer members replaced an old member's report:\n%s", r.String())
	}
	step := r.Model.Checkpoint.Step
	r.must("old", uploadOf(step, digest, "honest"))
	r.must("older", uploadOf(step, digest, "honest"))
	if found := r.UploadsOf(clientID(digest)); len(found) != MaxUploads || found[2].Place.Repo != "honest" || found[3].Place.Repo != "honest" {
		t.Errorf("of the newest checkpoint: %+v", found)
	}
	r.must("host", Join{Epoch: r.Progress.Epoch, Holds: clientID(digest)})
	r.must("host", uploadOf(step, digest, "authority")) // the key of an authority or a host counts as the oldest
	stranger := clientID("stranger")
	r.mustID(stranger, Join{Epoch: r.Progress.Epoch, Holds: clientID(digest)})
	if err := r.CheckUpload(stranger, uploadOf(step, digest, "nowhere")); !errors.Is(err, ErrFull) {
		t.Errorf("a client that only claims the model: %v, want ErrFull", err)
	}
}
