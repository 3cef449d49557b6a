package testnet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// TestNotesInOrder checks that notes are shown in the order of their events, whichever client's log is read first, and that
// the newest notes wait for earlier ones.
func TestNotesInOrder(t *testing.T) {
	ids := testIDs()
	tracker := newTracker(ids, testRun())
	for id, second := range map[int]int{0: 3, 1: 1, 2: 2} {
		tracker.add(ids[id].String(), at(second, event.Desynchronised{Reason: "why"}))
	}
	tracker.remark("a remark follows the events before it")
	now := at(3, nil).Time.Add(noteHold - time.Millisecond)
	first := tracker.progressAt(now, false).Notes
	rest := tracker.progressAt(now, true).Notes
	want := []string{"client-2 is no longer a member: why", "client-3 is no longer a member: why"}
	if !slices.Equal(first, want) {
		t.Errorf("first %q, want %q", first, want)
	}
	if want := []string{"client-1 is no longer a member: why", "a remark follows the events before it"}; !slices.Equal(rest, want) {
		t.Errorf("then %q, want %q", rest, want)
	}
}

// TestControl checks which run is compared with a run with cheats: the newest finished run without cheats of the same
// configuration.
func TestControl(t *testing.T) {
	parent := t.TempDir()
	base := Summary{Finished: true, RunID: "cheats", TotalRounds: 48, HeldOutLossFirst: 5.5, HeldOutSample: "all", HeldOutLossLast: 2.5, Clients: make([]ClientSummary, 6)}
	write := func(name string, change func(s *Summary)) {
		t.Helper()
		s := base
		change(&s)
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeJSON(filepath.Join(dir, summaryFile), s); err != nil {
			t.Fatal(err)
		}
	}
	if got := control(filepath.Join(parent, "mine"), base); got != nil {
		t.Errorf("without other runs: %+v", got)
	}
	write("cheats-1", func(s *Summary) { s.HeldOutLossLast = 2.25 })
	write("cheats-2", func(*Summary) {})
	write("cheats-3", func(s *Summary) { s.Trials = &Trials{} })
	write("cheats-4", func(s *Summary) { s.Finished = false })
	write("cheats-5", func(s *Summary) { s.Clients = s.Clients[1:] })
	write("cheats-6", func(s *Summary) { s.HeldOutLossFirst = 5 })
	write("cheats-7", func(s *Summary) { s.TotalRounds = 8 })
	want := Control{Dir: filepath.Join(parent, "cheats-2"), HeldOutLoss: 2.5}
	if got := control(filepath.Join(parent, "mine"), base); got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestHarm checks that the summary states whether false results entered the model, and the difference of the loss if it is
// known.
func TestHarm(t *testing.T) {
	for want, trials := range map[string]*Trials{
		"none: no false result entered the model":                                                         {Cheats: []CheatSummary{{Sent: 4}}},
		"3 false results are in the model; to measure their effect, run the same command without --cheat": {Cheats: []CheatSummary{{Sent: 4, Counted: 3}}},
		"3 false results are in the model; its held-out loss is 2.750, +0.250 nats from the 2.500 of the honest run honest": {
			Cheats: []CheatSummary{{Sent: 4, Counted: 1}, {Counted: 2}}, heldOut: 2.75, Control: &Control{"honest", 2.5},
		},
	} {
		var out strings.Builder
		if trials.print(&out); !strings.Contains(out.String(), "  harm               "+want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
