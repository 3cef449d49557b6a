package core

import (
	"math/bits"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// Events of intermediate checkpoints.
type (
	// Idle means that the trainer may be idle, so that the member can take a model that is due.
	Idle struct {
		Replica *Replica // nil: none
		Copies
	}

	// Unreported is the newest model that the member could report in a round.
	Unreported struct{ Model coordinator.Recorded }

	// Copies describes the member's copies of intermediate checkpoints.
	Copies struct {
		Busy, Finished bool   // a first copy is hashed or written; none is
		Bytes          int    // of a copy
		Answered       uint32 // newest step after which a model was taken because a member that left reported it
		Has            func(step uint32) bool
	}
)

// ReportedTaken means that the host accepted the report of an intermediate checkpoint.
type ReportedTaken struct{ coordinator.Recorded }

func (Idle) event()       {}
func (Unreported) event() {}

func (ReportedTaken) report() {}

// intermediate decides which models of the running epoch the member takes, so that the run can fall back
// to them.
type intermediate struct {
	owed uint32 // step of the model to take as soon as the trainer is idle, because the trainer continued with a speculation; 0: none
}

// look takes the model after the newest applied step, once the trainer is idle.
func (i *intermediate) look(c *common, e Idle) {
	if e.Replica != nil && i.owes(c, e.Replica, e.Copies) {
		i.owed = 0
		c.ready.Next = Snapshot{e.Replica.Step}
	}
}

// owes reports whether the idle member takes the model after the newest applied step, in two cases: it
// continued with a speculation when that model was due; or a member that left reported this model. In
// the second case the run records the model when this member reports it too, so that no counted result is
// lost.
func (i *intermediate) owes(c *common, r *Replica, copies Copies) bool {
	if r.Closing || r.Step < r.Epoch.StartStep || !c.isMember() || !c.Jobs.Idle() || copies.Busy || copies.Has(r.Step) {
		return false
	}
	return r.Step == i.owed || Answers(c.state, r.Step, copies.Answered)
}

// due reports whether to take the model after a step that is applied now. The first one is due
// commit_every_rounds rounds after the last agreed one, or after the start of the epoch. While no model
// has enough reports, the distance to the next one doubles each time. Therefore members that hash slowly,
// or see the run later, eventually report the same models. A member that reaches a step whose model the
// other members have already agreed on also takes that model, because they may have left when the model
// is needed.
func (c *common) due(r *Replica, step uint32, copies Copies) bool {
	s := c.state
	if r.Closing || !c.isMember() || copies.Busy || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		return false
	}
	since := s.Epoch.StartStep - 1
	if s.Epoch.Commit.Step != 0 {
		since = s.Epoch.Commit.Step
	}
	every := config.CommitEvery(s.Model.Definition, s.Config)
	return step == s.Epoch.Commit.Step || step > since && (step-since)%every == 0 && bits.OnesCount32((step-since)/every) == 1 ||
		Answers(s, step, copies.Answered)
}

// Answers reports whether to take the model after a step because a member that left has reported this
// model. The run records the model only if other members report it too. There is at most one such model
// every commit_every_rounds rounds, however often members leave and return: answered is the step of the
// newest one.
func Answers(s *coordinator.State, step, answered uint32) bool {
	if step <= s.Epoch.Commit.Step || answered != 0 && step-answered < config.CommitEvery(s.Model.Definition, s.Config) {
		return false
	}
	left := func(m coordinator.Client) bool { return m.State == coordinator.Withdrawn && m.Report.Step == step }
	return slices.ContainsFunc(s.Epoch.Clients, left) || slices.ContainsFunc(s.Epoch.Exited, left)
}

// unreported reports a model to the run.
func (c *common) unreported(e Unreported) {
	if s := c.state.RunState; !c.isMember() || s != coordinator.RoundTrain && s != coordinator.RoundWitness {
		return
	}
	report := coordinator.ReportCheckpoint{Step: e.Model.Step + 1, Digest: e.Model.Digest}
	c.submit(intermediateKind, report, report)
}
