package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/ledger"
)

// plan is the journal's data about one round.
type plan struct {
	round       coordinator.Round
	assignments []assign.Assignment
}

// owner returns the member that had to train a batch.
func (p plan) owner(batch event.Batch) string {
	for _, a := range p.assignments {
		if batchOf(a.Batch) == batch {
			return identity.ID(p.round.Members[a.Member]).String()
		}
	}
	return ""
}

func batchOf(b assign.BatchID) event.Batch { return event.Batch{b.Start, b.End} }

// readPlans replays the journal and returns the started rounds, by step from 1. It checks that
// every step started once, that rounds have adjacent positions, that the batches of a round cover the
// round's positions, each once, and that the ledger balances.
func readPlans(t *testing.T, n *network) []plan {
	t.Helper()
	var plans []plan
	var book ledger.Ledger
	final, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(_ follow.Record, s *coordinator.State) error {
		if err := book.See(s); err != nil {
			t.Errorf("step %d: %v", s.Progress.Step, err)
		}
		round := s.CurrentRound()
		if round == nil || s.RunState != coordinator.RoundTrain || len(plans) > 0 && plans[len(plans)-1].round.Step == round.Step {
			return nil
		}
		copied := *round
		copied.Members, copied.Witnesses = slices.Clone(round.Members), nil
		plans = append(plans, plan{copied, round.Assignments(s.Config)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if final.State.RunState != coordinator.Finished {
		t.Errorf("the journal ends in %v", final.State.RunState)
	}
	next := uint64(0)
	for i, p := range plans {
		if p.round.Step != uint32(i+1) {
			t.Fatalf("round %d of the journal has step %d", i+1, p.round.Step)
		}
		if p.round.Position != next {
			t.Errorf("step %d begins at position %d, but the previous step ended at %d", p.round.Step, p.round.Position, next)
		}
		for _, a := range p.assignments {
			if a.Batch.Start != next {
				t.Errorf("step %d: batch %v does not begin at %d", p.round.Step, a.Batch, next)
			}
			next = a.Batch.End
		}
		if want := p.round.NextPosition(); next != want {
			t.Errorf("step %d: batches end at %d, the round's positions at %d", p.round.Step, next, want)
		}
	}
	return plans
}

// checkRun compares the clients' work with the work that the server's journal assigned to them.
func checkRun(t *testing.T, n *network, clients ...*client) {
	t.Helper()
	plans := readPlans(t, n)
	replicas := make(map[uint32]string)
	announced := make(map[event.Batch]string)
	counted := make(map[uint32]int) // as the clients report about their own results
	applied := make(map[uint32]event.Applied)
	for _, c := range clients {
		own, mine := make(map[uint32]bool), make(map[uint32]bool)
		step := uint32(0) // of the newest state
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Started: // the memory of an earlier life was lost
				clear(own)
			case event.State:
				if body.Step < step {
					t.Errorf("%s saw step %d after step %d", c.name, body.Step, step)
				}
				step = body.Step
			case event.ResultSent:
				if owner := plans[body.Step-1].owner(body.Batch); owner != c.id {
					t.Errorf("%s announced batch %v of step %d, which belongs to %q", c.name, body.Batch, body.Step, owner)
				}
				if other, twice := announced[body.Batch]; twice {
					t.Errorf("batch %v was announced by %s and again by %s", body.Batch, other, c.name)
				}
				announced[body.Batch] = c.name
			case event.Applied:
				if own[body.Step] {
					t.Errorf("%s applied step %d twice", c.name, body.Step)
				}
				own[body.Step] = true
				checkApplied(t, c, plans[body.Step-1], body)
				if replica, known := replicas[body.Step]; known && replica != body.Replica {
					t.Errorf("step %d: the replica of %s is %s, of a different client %s", body.Step, c.name, body.Replica, replica)
				}
				replicas[body.Step], applied[body.Step] = body.Replica, body
				if body.OwnCounted && !mine[body.Step] {
					mine[body.Step] = true
					counted[body.Step]++
				}
			case event.Rejected, event.Equivocation, event.Desynchronised, event.Failed:
				t.Errorf("%s: %s: %+v", c.name, body.Kind(), body)
			}
		}
	}
	for i := range plans {
		step := uint32(i + 1)
		if _, known := applied[step]; !known {
			t.Errorf("no member applied step %d", step)
		}
		if counted[step] > applied[step].Counted {
			t.Errorf("step %d: %d results counted, %d clients report a counted result", step, applied[step].Counted, counted[step])
		}
	}
}

// checkApplied compares one step of one client with the plan.
func checkApplied(t *testing.T, c *client, p plan, a event.Applied) {
	t.Helper()
	if a.Counted+len(a.Lost) != len(p.assignments) {
		t.Errorf("%s, step %d: %d batches counted and %d lost of %d", c.name, a.Step, a.Counted, len(a.Lost), len(p.assignments))
	}
	for _, lost := range a.Lost {
		if owner := p.owner(lost.Batch); owner != lost.Owner {
			t.Errorf("%s, step %d: lost batch %v is %q's, not %s's", c.name, a.Step, lost.Batch, owner, lost.Owner)
		}
	}
}

// checkStayed checks a client that ran without a restart and was a member of every round.
func checkStayed(t *testing.T, c *client, steps int) {
	t.Helper()
	var applied []uint32
	for _, e := range c.events() {
		if body, ok := e.Body.(event.Applied); ok {
			applied = append(applied, body.Step)
		}
	}
	for i := range steps {
		if i >= len(applied) || applied[i] != uint32(i+1) {
			t.Fatalf("%s applied steps %v, want each of %d in order", c.name, applied, steps)
		}
	}
	if len(applied) != steps {
		t.Errorf("%s applied %d steps, want %d", c.name, len(applied), steps)
	}
}

// checkServerStates checks that no restart of the server reverted a published state.
func checkServerStates(t *testing.T, n *network) {
	t.Helper()
	var last event.State
	for _, e := range readEvents(t, filepath.Join(n.dir, "server", "events.jsonl")) {
		state, ok := e.Body.(event.State)
		if !ok {
			continue
		}
		if state.Step < last.Step || state.Epoch < last.Epoch {
			t.Errorf("the server went back from epoch %d step %d to epoch %d step %d", last.Epoch, last.Step, state.Epoch, state.Step)
		}
		last = state
	}
}
