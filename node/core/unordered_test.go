package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestEventsInAnyOrder passes random events in any order, also stale and repeated ones. A member panics
// for none of them, never sends two actions of a kind at once, and asks for no seat while it leaves.
func TestEventsInAnyOrder(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			(&disorder{T: t, chance: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1000, 0), flying: map[string]bool{}}).run()
		})
	}
}

// disorder is a member that gets random events.
type disorder struct {
	*testing.T
	*Member
	chance *rand.Rand
	now    time.Time
	flying map[string]bool
	checks []ID
	train  ID // 0: the trainer is idle
	seat   bool
	parts  []*Part
}

func (d *disorder) maybe() bool { return d.chance.IntN(2) == 0 }

func (d *disorder) run() {
	d.Member = New(Options{ID: me, Checks: d.maybe(), Folder: d.maybe(), AcceptLoss: d.maybe(), Holdings: &script{}, FinalWait: time.Duration(d.chance.IntN(3)-1) * time.Second})
	for step := range uint32(6) {
		part := NewPart(step, d.maybe(), d.now)
		d.parts = append(d.parts, &part)
	}
	d.pass(Seen{d.someState()})
	d.pass(Began{})
	for range 400 {
		d.now = d.now.Add(time.Duration(d.chance.IntN(2000)) * time.Millisecond)
		if d.train != 0 && d.maybe() {
			d.Jobs.Done(d.train)
			d.train = 0
		}
		d.pass(d.event())
	}
	if !d.Leave.Begun() {
		d.pass(Interrupted{time.Second})
	}
	d.Step(d.now, Left{})
	withdraws := slices.ContainsFunc(d.Ready().Submit, func(s Submission) bool { return s.Kind == withdrawKind })
	d.Advance()
	if d.seat && !withdraws {
		d.Error("a client that asked for a seat ends without withdrawing")
	}
}

// event returns a random event.
func (d *disorder) event() Event {
	part, held := d.parts[d.chance.IntN(len(d.parts))], (*Model)(nil)
	if d.maybe() {
		held = &Model{Step: uint32(d.chance.IntN(6))}
	}
	var replica *Replica
	if d.maybe() {
		replica = &Replica{Epoch: EpochOf(d.state), Step: uint32(d.chance.IntN(6)), Has: uint32(d.chance.IntN(6)), Closing: d.maybe()}
	}
	own := []*assign.BatchID{nil, {}, {Start: 1, End: 2}}[d.chance.IntN(3)]
	round := &coordinator.Round{Step: part.Step, Members: []coordinator.ClientID{me}}
	trainer := Trainer{Held: held, Redefined: d.maybe(), Prepared: d.maybe()}
	switch d.chance.IntN(38) {
	case 0, 1, 2:
		return Seen{d.someState()}
	case 3:
		return Look{Trainer: Trainer{Held: held, Redefined: d.maybe()}, Replica: replica}
	case 4:
		id := ID(d.chance.IntN(5))
		if len(d.checks) > 0 {
			id = d.checks[d.chance.IntN(len(d.checks))]
		}
		return Checked{ID: id, Cancelled: d.maybe()}
	case 5:
		return Prepared{}
	case 6:
		return Entered{}
	case 7:
		return Lost{}
	case 8, 9:
		return SitDown{replica}
	case 10:
		return Close{Replica: replica, Newest: uint32(d.chance.IntN(6)), Taken: d.maybe()}
	case 11:
		return Cooldown{held}
	case 12:
		return Persisted{Done: d.maybe(), HeldOut: HeldOut{Tokens: d.chance.IntN(2), Last: time.Second}}
	case 13:
		return Turn{Part: part, Own: own, After: d.maybe(), MaySign: d.maybe()}
	case 14:
		return Ahead{Part: part, Own: own, Replica: replica, Lag: uint32(1 + d.chance.IntN(2)),
			Next:        func() Prediction { return Prediction{Step: uint32(2 + d.chance.IntN(4)), OK: d.maybe()} },
			Speculation: Speculation{Begun: d.maybe(), Done: d.maybe(), Possible: d.maybe(), Whole: d.maybe, Leeway: time.Second, Judges: d.maybe()}}
	case 15:
		return Permitted{}
	case 16:
		return Tokens{d.maybe()}
	case 17:
		return Attest{Part: part, Round: round, Results: &script{arrived: []coordinator.ClientID{me}}, Over: d.maybe(), Judges: d.maybe()}
	case 18:
		return Proof{WitnessRound: coordinator.WitnessRound{Step: part.Step}}
	case 19:
		return Accuse{[]*Part{nil, part}[d.chance.IntN(2)]}
	case 20:
		if replica == nil {
			replica = &Replica{}
		}
		return Outstanding{Replica: replica, Want: uint32(d.chance.IntN(6)), Known: d.maybe(), Speculated: d.maybe()}
	case 21:
		verdict := Verdict{Missing: d.chance.IntN(2), Unsure: d.maybe(), Claimed: d.maybe()}
		return Judged{Step: part.Step, Outvoted: d.maybe(), MissingSince: new(time.Time), Completion: time.Second, InVain: d.maybe(), Recorded: d.maybe(),
			WellAnswered: d.maybe(), Judge: func(bool) Verdict { return verdict }}
	case 22:
		if d.Leave.Begun() || d.chance.IntN(10) > 0 {
			return Lost{}
		}
		return Interrupted{time.Duration(d.chance.IntN(3)) * time.Second}
	case 23:
		return Leaving{Replica: replica, Held: held, InMemory: d.maybe(), Round: []*coordinator.Round{nil, round}[d.chance.IntN(2)], HostFault: d.maybe(),
			Unreported: d.maybe(), Writing: d.maybe(), Copies: d.copies()}
	case 24:
		return Over{held}
	case 25:
		return Warmup{trainer, replica != nil}
	case 26:
		return Rejoin{Trainer: trainer, Lag: uint32(1 + d.chance.IntN(2)), Follows: func(uint32) bool { return d.maybe() }, Leads: func(_, _ uint32) bool { return d.maybe() }}
	case 27:
		w := Load{From: d.state.Model.Checkpoint}
		if d.maybe() {
			w.Taken.Step = 1
		}
		return Obtained{Load: w, Fault: Fault(d.chance.IntN(int(OtherFault) + 1))}
	case 29:
		return Early{Step: part.Step, Want: uint32(d.chance.IntN(6)), Known: d.maybe(), Outvoted: d.maybe(), Judge: func() Verdict { return Verdict{Missing: d.chance.IntN(2)} }}
	case 30:
		if replica == nil {
			replica = &Replica{}
		}
		return Counted{Replica: replica, Step: part.Step, Confirmed: d.maybe(), Copies: d.copies()}
	case 31:
		return []Event{Applied{Step: part.Step}, Applied{Step: part.Step, Err: errors.New("no memory")}, Mispredicted{part.Step}}[d.chance.IntN(3)]
	case 32:
		return Idle{replica, d.copies()}
	case 33:
		return Unreported{coordinator.Recorded{Step: part.Step}}
	case 36:
		return Evaluated{Measure: Measure{coordinator.Recorded{Step: part.Step}}, Claim: uint16(d.chance.Uint32())}
	case 34:
		return InRound{}
	case 35:
		return Urgent{Part: part, Own: d.maybe(), Lag: uint32(1 + d.chance.IntN(2)), Leeway: time.Second, Next: func() Prediction { return Prediction{OK: d.maybe()} }}
	case 28:
		return Replayed{Until: uint32(d.chance.IntN(6)), Rounds: d.chance.IntN(2), Err: []error{nil, errors.New("another replica")}[d.chance.IntN(2)]}
	}
	for _, kind := range []string{joinKind, readyKind, returnKind, withdrawKind, checkpointKind, intermediateKind, witnessKind, healthKind} {
		if d.flying[kind] && d.maybe() {
			delete(d.flying, kind)
			return Answered{kind, []error{nil, coordinator.ErrWrongEpoch, errors.New("no answer")}[d.chance.IntN(3)]}
		}
	}
	return Finish{Trainer: Trainer{Held: held, Redefined: d.maybe()}, Closed: d.maybe(), Saving: d.maybe(), Failed: d.maybe(), Connected: map[coordinator.ClientID]bool{me: d.maybe()}}
}

// copies returns random copies.
func (d *disorder) copies() Copies {
	return Copies{Busy: d.maybe(), Finished: d.maybe(), Bytes: 1 << 30, Answered: uint32(d.chance.IntN(3)), Has: func(uint32) bool { return d.maybe() }}
}

// someState returns a state in which this client may be anything.
func (d *disorder) someState() *coordinator.State {
	s := &coordinator.State{RunState: coordinator.RunState(d.chance.IntN(int(coordinator.Paused) + 1))}
	s.Progress.Step, s.Progress.Epoch, s.Epoch.StartStep, s.OriginStep = uint32(2+d.chance.IntN(3)), uint32(d.chance.IntN(2)), 1, 1
	s.Config.TotalSteps, s.Config.WarmupTime = 4, 1000
	s.Model.Checkpoint.Kind = coordinator.CheckpointLocal
	if d.maybe() {
		s.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: 1, Digest: [32]byte{1}}
	}
	client := coordinator.Client{ID: me, HoldsModel: d.maybe(), Commitment: d.commitments.next}
	switch d.chance.IntN(4) {
	case 0:
		s.Epoch.Clients = append(s.Epoch.Clients, client)
	case 1:
		s.Pending = append(s.Pending, client)
	case 2:
		client.State = coordinator.Dropped
		s.Epoch.Exited = append(s.Epoch.Exited, client)
	}
	for step := range s.Progress.Step {
		s.Epoch.Rounds = append(s.Epoch.Rounds, coordinator.Round{Step: 1 + step, Members: []coordinator.ClientID{me}, WitnessesNeeded: 1})
	}
	return s
}

// pass passes an event, and checks its effects.
func (d *disorder) pass(e Event) {
	d.Step(d.now, e)
	ready := d.Ready()
	for _, a := range ready.Submit {
		if _, last := e.(Left); d.flying[a.Kind] && !last {
			d.Errorf("%T: two actions %q are in flight", e, a.Kind)
		}
		d.flying[a.Kind] = true
		switch a.Action.(type) {
		case coordinator.Join, coordinator.Return:
			d.seat = true
			if d.Leave.Begun() {
				d.Errorf("%T: a leaving client sends %T", e, a.Action)
			}
		case coordinator.Ready:
			if d.Leave.Begun() {
				d.Errorf("%T: a leaving client sends %T", e, a.Action)
			}
		}
	}
	for _, started := range ready.Start {
		d.checks = append(d.checks, started.ID)
	}
	switch w := ready.Next.(type) {
	case Train:
		if !d.Jobs.Idle() {
			d.Errorf("%T: %+v starts while the trainer is busy", e, w)
		} else {
			d.train = d.Jobs.Start(w, func() {})
		}
	case Speculate, Load, Prepare, Replay, Measure:
		if !d.Jobs.Idle() {
			d.Errorf("%T: %+v starts while the trainer is busy", e, w)
		}
	}
	d.Advance()
}
