package sim

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// commitMutations break the rules of intermediate checkpoints.
var commitMutations = []mutation{
	{"an intermediate checkpoint is forgotten when its epoch ends", commitForgotten(true), scenario.AllFaults, []check.Assertion{check.CommitKept}, 72},
	{"an intermediate checkpoint before the checkpoint is forgotten", commitForgotten(false), scenario.AllFaults, []check.Assertion{check.CommitKept}, 0},
	{"a report counts twice", commitOf(func(reports, quorum int) bool { return 2*reports >= quorum }), scenario.AllFaults, []check.Assertion{check.CommitKept}, 0},
	{"one report is enough for an intermediate checkpoint", commitOf(func(reports, _ int) bool { return reports > 0 }), scenario.AllFaults, []check.Assertion{check.CommitKept, check.CheckpointTrue}, 0},
	{"an epoch falls back to the origin though members hold the model", fallsTooFar, scenario.AllFaults, []check.Assertion{check.CommitKept}, 0},
}

// TestRecordedIntermediateCheckpoints has members that report models while rounds run. All assertions must hold, and
// intermediate checkpoints must be recorded.
func TestRecordedIntermediateCheckpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	made := 0
	for seed := uint64(1); seed <= 8; seed++ {
		r := rules{reports: true}
		r.apply = func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
			before := s.Epoch.Commit
			err := s.Apply(from, nonce, a)
			if s.Epoch.Commit != before {
				made++
			}
			return err
		}
		if result := Run(Options{Seed: seed, Clients: 8, Rounds: 4, Faults: scenario.AllFaults, rules: r}); result.Violation != nil {
			t.Errorf("seed %d: %v", seed, result.Violation)
		}
	}
	if made == 0 {
		t.Error("no intermediate checkpoint was made")
	}
	t.Logf("%d intermediate checkpoints", made)
}

// instead changes the state before a tick that leaves a phase.
func instead(of coordinator.RunState, change func(s *coordinator.State)) rules {
	return rules{reports: true, tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState == of {
			changed := s.Clone()
			change(&changed)
			if changed.Tick(now, draw); changed.RunState != of {
				*s = changed
				return true
			}
		}
		return s.Tick(now, draw)
	}}
}

// commitForgotten discards an intermediate checkpoint at the end of an epoch: if recorded is set,
// the checkpoint from which the run would continue, otherwise one that is older than the model from
// which it continues.
func commitForgotten(recorded bool) func() rules {
	return func() rules {
		return instead(coordinator.Cooldown, func(s *coordinator.State) {
			after, commit := s.Clone(), s.Epoch.Commit
			after.Tick(1<<62, [32]byte{})
			if commit.Step != 0 && (after.Model.Checkpoint.Step == commit.Step) == recorded {
				s.Epoch.Commit = coordinator.Recorded{}
			}
		})
	}
}

// commitOf records an intermediate checkpoint if enough accepts the number of reports.
func commitOf(enough func(reports, quorum int) bool) func() rules {
	return func() rules {
		return rules{reports: true, apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
			err := s.Apply(from, nonce, a)
			report, is := a.(coordinator.ReportCheckpoint)
			if !is || err != nil || s.RunState == coordinator.Cooldown {
				return err
			}
			model := coordinator.Recorded{Step: report.Step - 1, Digest: report.Digest}
			count := len(slices.DeleteFunc(s.Reporters(model.Step), func(c coordinator.Client) bool { return c.Report != model }))
			if s.Epoch.Commit.Step < model.Step && enough(count, check.QuorumOf(s.HealthyCount())) {
				s.Epoch.Commit = model
			}
			return nil
		}}
	}
}

func fallsTooFar() rules {
	return instead(coordinator.WaitingForMembers, func(s *coordinator.State) {
		if c := &s.Model.Checkpoint; c.Origin != 0 {
			*c = coordinator.Checkpoint{Kind: c.Origin, Repo: c.Repo, Revision: c.Revision}
			s.Earlier, s.Uploads = nil, nil
		}
	})
}
