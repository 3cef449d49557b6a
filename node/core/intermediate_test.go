package core

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestIntermediateCheckpointsAreDue checks that members whose intermediate checkpoints do not agree
// try again at the same steps.
func TestIntermediateCheckpointsAreDue(t *testing.T) {
	c, r := memberOf(1)
	c.state.Epoch.StartStep = 11
	var due []uint32
	for step := uint32(11); step < 40; step++ {
		if c.due(r, step, Copies{}) {
			due = append(due, step)
		}
		if step == 22 {
			c.state.Epoch.Commit.Step = 22
		}
	}
	if got := fmt.Sprint(due); got != "[13 16 22 25 28 34]" {
		t.Errorf("due after %v", got)
	}
	if !c.due(r, 22, Copies{}) {
		t.Error("a slower member does not take the agreed model")
	}
	if c.due(r, 46, Copies{Busy: true}) {
		t.Error("a second copy is taken while the first is hashed")
	}
}

// memberOf returns a member of a round whose epoch has one more member.
func memberOf(start uint32) (*common, *Replica) {
	s := &coordinator.State{RunState: coordinator.RoundTrain, Config: coordinator.Config{RoundsPerEpoch: 60}}
	s.Epoch.StartStep, s.Epoch.Clients = start, []coordinator.Client{{ID: me}, {ID: idOf("a")}}
	return &common{Options: Options{ID: me}, state: s}, &Replica{}
}

// TestLeaversAreAnsweredSeldom checks that members take an intermediate checkpoint after the step
// that a leaving member reported, but only one in commit_every_rounds rounds, even if a member
// leaves and comes back in every round.
func TestLeaversAreAnsweredSeldom(t *testing.T) {
	c, r := memberOf(1)
	c.state.Epoch.Commit.Step = 3
	hostile, answered := &c.state.Epoch.Clients[1], uint32(0)
	var due []uint32
	for step := uint32(4); step < 12; step++ {
		hostile.State, hostile.Report.Step = coordinator.Healthy, step
		if step != 6 && step != 9 && c.due(r, step, Copies{Answered: answered}) {
			t.Errorf("a member that stays is answered after step %d", step)
		}
		hostile.State = coordinator.Withdrawn
		if Answers(c.state, step, answered) {
			due, answered = append(due, step), step
		}
	}
	if got := fmt.Sprint(due); got != "[4 7 10]" {
		t.Errorf("answered after %v", got)
	}
}
