package history_test

import (
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/history"
)

// TestJuries checks that juries eject a cheat and a slanderer, both with the entry that ejected
// them, the reason, and the epoch in which the ejection ends.
func TestJuries(t *testing.T) {
	h, entries := told(t, judged)
	cheat, slander := h.Members[member(4)], h.Members[member(7)]
	for _, want := range []struct {
		m     *history.Member
		why   string
		until uint32
	}{
		{cheat, "a jury found it guilty (wrong result)", 4},
		{slander, "it made a false accusation (wrong result)", 4},
	} {
		if want.m.Status != "ejected" || want.m.Why != want.why || want.m.Ejected != 1 || want.m.Until != want.until {
			t.Errorf("want an ejection until epoch %d because %q: %+v", want.until, want.why, want.m)
		}
		if _, ok := entries[want.m.Entry].Action.(coordinator.Vote); !ok {
			t.Errorf("entry %d of the ejection of %s is %+v", want.m.Entry, want.m.ID, entries[want.m.Entry])
		}
	}
	if cheat.Tried != 1 || slander.Tried != 0 || slander.Accuses != 1 {
		t.Errorf("the cheat %+v, the slanderer %+v", cheat, slander)
	}
	if len(h.Open) != 0 || len(h.Trials) != 2 {
		t.Fatalf("open %+v, over %+v", h.Open, h.Trials)
	}
	for _, trial := range h.Trials {
		want, loser := "guilty", cheat.ID
		if trial.Accuser == slander.ID {
			want, loser = "innocent", slander.ID
		}
		if trial.Outcome != want || trial.Ejected != loser || trial.Jury < 9 || 20*(trial.Guilty+trial.Innocent) < 11*trial.Jury {
			t.Errorf("want %s: %+v", want, trial)
		}
		if a, ok := entries[trial.Entry].Action.(coordinator.Accuse); !ok || identity.ID(a.Client).String() != trial.Accused {
			t.Errorf("entry %d of the accusation of %s is %+v", trial.Entry, trial.Accused, entries[trial.Entry])
		}
	}
	votes := uint64(0)
	for _, e := range entries {
		if _, ok := e.Action.(coordinator.Vote); ok {
			votes++
		}
	}
	for _, m := range h.Members {
		votes -= m.Voted
	}
	if votes != 0 {
		t.Errorf("%d votes without a juror", votes)
	}
	for _, e := range h.Events {
		if e.Kind == "other" {
			t.Errorf("an action is not known: %+v", e)
		}
	}
}

// TestOpenTrials checks that a trial is among the open trials while its jury votes, as in the
// state.
func TestOpenTrials(t *testing.T) {
	h, most := &history.History{}, 0
	err := dashtest.Play(judged, func(e history.Entry, s *coordinator.State) error {
		h.See(e, s)
		if len(h.Open) != len(s.Trials) {
			t.Errorf("entry %d: %d are open, want %d", e.Number, len(h.Open), len(s.Trials))
		}
		for i, trial := range h.Open {
			if want := &s.Trials[i]; trial.Jury != int(want.Jurors) || trial.Guilty != int(want.Guilty) || trial.Until != want.Since+s.Config.TrialRounds() {
				t.Errorf("entry %d: %+v, want %+v", e.Number, trial, want)
			}
			most = max(most, trial.Guilty+trial.Innocent)
		}
		return nil
	})
	if err != nil || most == 0 {
		t.Errorf("%d votes were seen: %v", most, err)
	}
}

// TestIdleJurors checks that a jury that does not vote decides nothing and that no member is
// punished.
func TestIdleJurors(t *testing.T) {
	o := judged
	o.Cheat, o.Hung, o.Rounds = 0, true, 60
	h, _ := told(t, o)
	outcomes := map[string]int{}
	for _, trial := range h.Trials {
		outcomes[trial.Outcome]++
		if trial.Guilty+trial.Innocent != 0 || trial.Ejected != "" {
			t.Errorf("no member voted: %+v", trial)
		}
	}
	for id, m := range h.Members {
		if m.Late+m.Slow+m.Dropped+m.Ejected != 0 {
			t.Errorf("%s lost something: %+v", id, m)
		}
	}
	if outcomes["no decision"] == 0 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// TestTrialsAreForgotten checks that only the newest trials are kept.
func TestTrialsAreForgotten(t *testing.T) {
	state, err := dashtest.Begin(dashtest.Options{RunID: "many", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	if err != nil {
		t.Fatal(err)
	}
	h := &history.History{}
	h.See(history.Entry{Time: 1}, &state)
	for n := range uint64(2 * history.MaxTrials) {
		state.Trials = []coordinator.Trial{{Accused: coordinator.ClientID{byte(n), byte(n >> 8)}, Fault: coordinator.FaultResult}}
		h.See(history.Entry{Number: n + 1, Time: 1}, &state)
	}
	if len(h.Trials) != history.MaxTrials || len(h.Open) != 1 || h.Trials[0].Entry != history.MaxTrials {
		t.Errorf("%d are over, the first of entry %d; %d are open", len(h.Trials), h.Trials[0].Entry, len(h.Open))
	}
}
