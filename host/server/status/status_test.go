package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

func id(n byte) coordinator.ClientID { return coordinator.ClientID(backendtest.Key(n).ID()) }

// inWarmup returns a run with two members and one pending client. One member is ready.
func inWarmup(t *testing.T) *coordinator.State {
	t.Helper()
	s, err := backendtest.Genesis("shown", 2)(id(9))
	if err != nil {
		t.Fatal(err)
	}
	for n := range byte(2) {
		if err := s.Apply(id(1+n), 1, coordinator.Join{}); err != nil {
			t.Fatal(err)
		}
	}
	for now := uint64(1_000_250); s.RunState != coordinator.Warmup && now < 1_100_000; now += 1000 {
		s.Tick(now, [32]byte{byte(now)})
	}
	if err := s.Apply(id(2), 2, coordinator.Ready{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(id(3), 1, coordinator.Join{}); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestRunIsTheSameThroughJSON(t *testing.T) {
	want := status.Of(inWarmup(t), [32]byte{7})
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got status.Run
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if len(got.Members) != 2 || got.Members[0].Ready || !got.Members[1].Ready || len(got.Pending) != 1 || got.State != "Warmup" {
		t.Fatalf("%s", text)
	}
}

// TestPrintOfContinuedRun checks that a run that continues an earlier run, and has trained nothing
// yet, has the progress of the earlier run.
func TestPrintOfContinuedRun(t *testing.T) {
	run := status.Of(inWarmup(t), [32]byte{7})
	run.Step, run.TotalSteps = 1001, 2000
	var text strings.Builder
	if err := run.Print(&text, time.UnixMilli(int64(run.Since*1000))); err != nil {
		t.Error(err)
	}
	golden.Compare(t, "continued.golden", text.String())
}

func TestPrint(t *testing.T) {
	state := inWarmup(t)
	state.Uploads = []coordinator.Upload{{Step: 5, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "run-step5"}}}
	state.RollbackGaps = []coordinator.RollbackGap{{First: 6, Last: 7}}
	state.Trials = []coordinator.Trial{{Accused: id(1), Accuser: id(2), Step: 4, Since: 5, Fault: coordinator.FaultSilent, Jurors: 9, Guilty: 3, Innocent: 1}}
	state.Authority.Ejections = []coordinator.Ejection{{Client: id(4), Until: 6, Reason: coordinator.AccusedWrongly}}
	run := status.Of(state, [32]byte{7})
	var text strings.Builder
	if err := run.Print(&text, time.UnixMilli(int64(run.Since*1000)+65_000)); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "warmup.golden", text.String())
	text.Reset()
	run.Step = run.TotalSteps + 1
	if err := run.Print(&text, time.UnixMilli(0)); err != nil {
		t.Errorf("of a run that has finished all steps: %v", err)
	}
	golden.Compare(t, "finished.golden", text.String())
}

// TestPrintMovesNoCursor checks that names of members and definitions cannot control a terminal.
func TestPrintMovesNoCursor(t *testing.T) {
	run := status.Of(inWarmup(t), [32]byte{7})
	run.Checkpoint.Repo, run.Uploads = "\x1b]52;c;eA==\a", []status.Upload{{Repo: "\x1b[2J"}}
	var shown strings.Builder
	if err := run.Print(&shown, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(shown.String(), func(r rune) bool { return r < ' ' && r != '\n' }) {
		t.Errorf("%q", shown.String())
	}
}

// TestClaims checks four witnesses. One of them claims a loss of 0.001 nats. The output shows the
// claim of the others, and the member whose claim is far away.
func TestClaims(t *testing.T) {
	s := inWarmup(t)
	round := coordinator.Round{Step: 7, WitnessesNeeded: 3}
	for i, loss := range []uint16{2345, 1, 2345, 2345} {
		round.Members = append(round.Members, id(byte(i)))
		round.Witnesses = append(round.Witnesses, coordinator.Witness{Member: uint16(i), Claim: coordinator.Claim{Loss: loss, Speed: 900}})
	}
	s.RunState, s.Epoch.Rounds = coordinator.RoundTrain, []coordinator.Round{round, {Step: 8}}
	run := status.Of(s, [32]byte{})
	if c := run.Claimed; c == nil || c.Step != 7 || c.Loss.Median != 2.345 || c.Loss.Spread != 0 || c.Loss.Count != 4 || len(c.Loss.Far) != 1 || c.Speed.Median != 900 {
		t.Fatalf("%+v", c)
	}
	s.Model.Checkpoint.Kind, s.Model.Checkpoint.Origin, s.Model.Checkpoint.Step = coordinator.CheckpointP2P, coordinator.CheckpointHub, 6
	s.Epoch.Clients[0].HeldOut = 2468
	if run = status.Of(s, [32]byte{}); run.HeldOut == nil || run.HeldOut.Step != 6 || run.HeldOut.Loss.Median != 2.468 || run.HeldOut.Loss.Count != 1 {
		t.Fatalf("held out: %+v", run.HeldOut)
	}
	var text strings.Builder
	if err := run.Print(&text, time.UnixMilli(0)); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "claims.golden", text.String())
	s.Epoch.Rounds = s.Epoch.Rounds[1:]
	if run := status.Of(s, [32]byte{}); run.Claimed != nil {
		t.Errorf("of a running round: %+v", run.Claimed)
	}
}

// TestNames checks that names appear after their keys and are marked as unverified, and that unsafe
// names are omitted.
func TestNames(t *testing.T) {
	state := inWarmup(t)
	state.Model.Definition = []byte(`{"Name":"A run","Description":"About \u003cb\u003e"}`)
	run := status.Of(state, [32]byte{7})
	id1, id2, id3 := backendtest.Key(1).ID(), backendtest.Key(2).ID(), backendtest.Key(3).ID()
	run.CallPeers([]backend.Peer{{ID: id1, Name: `Ada" Healthy`}, {ID: id2, Name: "\x1b[2J"}, {ID: id3}})
	run.CallAll(map[identity.ID]string{id3: "Ada\u202e"})
	if len(run.Names) != 1 || run.Name != "A run" || run.About != "About <b>" {
		t.Fatalf("got %q %q, %v; want len(run.Names) == 1 and run.Name == \"A run\" and run.About == \"About <b>\"", run.Name, run.About, run.Names)
	}
	run.CallAll(map[identity.ID]string{id3: "Grace"})
	var text strings.Builder
	if err := run.Print(&text, time.UnixMilli(int64(run.Since*1000))); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "names.golden", text.String())
	bytes, err := json.Marshal(run)
	var again status.Run
	if err != nil || json.Unmarshal(bytes, &again) != nil || cmp.Diff(run, again) != "" {
		t.Errorf("as JSON: %v, %s", err, cmp.Diff(run, again))
	}
	state.Model.Definition = []byte(`{"Name":"\u001b[2J","Description":"a\nb"}`)
	if run := status.Of(state, [32]byte{7}); run.Name != "" || run.About != "" {
		t.Errorf("got %q %q; want run.Name == \"\" and run.About == \"\"", run.Name, run.About)
	}
}

// TestProgress checks that every phase shows the number of the running round, or of the last round that has ended, and
// that a pause or a resumption that has not begun is shown.
func TestProgress(t *testing.T) {
	state := inWarmup(t)
	for _, c := range []struct {
		phase         coordinator.RunState
		step          uint32
		pause, resume bool
		want          []string
	}{
		{coordinator.WaitingForMembers, 1, false, false, []string{"step 0 of 40,"}},
		{coordinator.RoundTrain, 1, true, false, []string{"step 1 of 40,", "RoundTrain for 5s, pauses at the end of the epoch\n"}},
		{coordinator.Cooldown, 17, false, false, []string{"step 16 of 40,"}},
		{coordinator.Paused, 17, false, true, []string{"step 16 of 40,", "Paused for 5s, resumes in a moment\n"}},
		{coordinator.Finished, 41, false, false, []string{"all 40 steps"}},
	} {
		run := status.Of(state, [32]byte{7})
		run.State, run.Step, run.TotalSteps, run.DataIndex, run.Pausing, run.Resuming = c.phase.String(), c.step, 40, 300, c.pause, c.resume
		var text strings.Builder
		if err := run.Print(&text, time.UnixMilli(int64(run.Since*1000)+5000)); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.phase, want, &text)
			}
		}
	}
	state.PendingPause = true
	if run := status.Of(state, [32]byte{7}); !run.Pausing || run.Resuming {
		t.Errorf("pending pause: %v, %v", run.Pausing, run.Resuming)
	}
}

// TestShares checks that a run with shares by speed shows the offers of its members and the sizes of their batches.
func TestShares(t *testing.T) {
	s := inWarmup(t)
	s.Config.SharesBySpeed, s.Config.GlobalBatchSizeStart, s.Config.GlobalBatchSizeEnd = true, 17, 17
	for n, level := range map[byte]uint8{1: 80, 2: 112} {
		client, _ := s.Member(id(n))
		client.Offer, client.Level = level, level
	}
	if err := s.Apply(id(1), 2, coordinator.Ready{}); err != nil {
		t.Fatal(err)
	}
	s.Tick(1_200_000, [32]byte{1})
	run := status.Of(s, [32]byte{7})
	var text strings.Builder
	if err := run.Print(&text, time.UnixMilli(1_200_000)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"Healthy, offers 1069 tokens/s, trains 1 sequences", "Healthy, offers 17109 tokens/s, trains 16 sequences"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	s.Config.SharesBySpeed = false
	if run := status.Of(s, [32]byte{7}); run.Members[0].Share != (status.Share{}) {
		t.Errorf("%+v without shares by speed", run.Members[0])
	}
}
