package tally_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/wire"
)

// entry is an entry of a run's log: an action of a client, or a tick.
type entry struct {
	from      coordinator.ClientID
	action    coordinator.Action // nil: a tick
	now, draw uint64
}

// replay applies a log to a new state and calls after for each change.
func replay(t *testing.T, log []entry, after func(s *coordinator.State)) coordinator.State {
	t.Helper()
	config := clienttest.Config(auditMembers)
	config.RoundsPerEpoch, config.TotalSteps = auditSteps, auditSteps
	model := coordinator.Model{MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}}
	state, err := coordinator.New(clienttest.RunID, coordinator.ClientID{1}, config, model)
	if err != nil {
		t.Fatal(err)
	}
	for nonce, e := range log {
		if e.action == nil {
			state.Tick(e.now, [32]byte{byte(e.draw)})
		} else if err := state.Apply(e.from, uint64(nonce+1), e.action); err != nil {
			t.Fatalf("entry %d, %T: %v", nonce, e.action, err)
		}
		after(&state)
	}
	return state
}

const (
	auditMembers = 4
	auditSteps   = 5
	culprit      = 2 // the batch whose trainer behaves differently in each round
)

// auditedRun is a run with the announcements that its members signed, and the results that must
// count.
type auditedRun struct {
	log     []entry
	said    [][]byte
	counted map[uint32][]tally.Counted
	replica [32]byte // replica of all members
}

// do adds an entry and returns the state after it.
func (r *auditedRun) do(t *testing.T, e entry) coordinator.State {
	t.Helper()
	r.log = append(r.log, e)
	return replay(t, r.log, func(*coordinator.State) {})
}

// tickUntil adds ticks until the run is in a state.
func (r *auditedRun) tickUntil(t *testing.T, want coordinator.RunState) coordinator.State {
	t.Helper()
	for range 100 {
		now := uint64(1000 + 20_000*len(r.log))
		if s := r.do(t, entry{now: now, draw: now * 31}); s.RunState == want {
			return s
		}
	}
	t.Fatalf("the run does not reach %v", want)
	return coordinator.State{}
}

// play makes members train and witness a whole epoch.
func play(t *testing.T) *auditedRun {
	r := &auditedRun{counted: make(map[uint32][]tally.Counted), replica: tally.StartReplica([32]byte{7})}
	for i := range auditMembers {
		r.do(t, entry{from: coordinator.ClientID(clienttest.Key(i).ID()), action: coordinator.Join{}})
	}
	s := r.tickUntil(t, coordinator.Warmup)
	for _, c := range s.Epoch.Clients {
		r.do(t, entry{from: c.ID, action: coordinator.Ready{}})
	}
	for range auditSteps {
		s = r.tickUntil(t, coordinator.RoundTrain)
		r.playRound(t, &s)
		s = r.tickUntil(t, coordinator.RoundWitness)
	}
	if s = r.tickUntil(t, coordinator.Cooldown); len(s.Epoch.Rounds) == 0 {
		t.Fatal("no rounds are stored")
	}
	return r
}

// heldBy returns the results that the culprit signed in a step, the result that each witness holds,
// and the result that counts.
func heldBy(step uint32, own [32]byte) (signed [][32]byte, held [auditMembers][32]byte, counts [32]byte) {
	none, second, third := [32]byte{}, clienttest.Hash(byte(100+step)), clienttest.Hash(byte(200+step))
	switch step {
	case 1: // honest
		return [][32]byte{own}, [auditMembers][32]byte{own, own, own, own}, own
	case 2: // silent
		return nil, held, none
	case 3: // none of two results has a quorum
		return [][32]byte{own, second}, [auditMembers][32]byte{own, second, own, second}, none
	case 4: // the last of three results has a quorum
		return [][32]byte{own, second, third}, [auditMembers][32]byte{third, third, second, third}, third
	default: // too late for one witness
		return [][32]byte{own}, [auditMembers][32]byte{own, own, none, own}, own
	}
}

// playRound makes the members announce their results and witness each other's results.
func (r *auditedRun) playRound(t *testing.T, s *coordinator.State) {
	t.Helper()
	round := s.CurrentRound()
	witnesses := make([]*tally.Tally, auditMembers)
	for k := range witnesses {
		witnesses[k] = tally.New(*round, s.Epoch.StartStep, round.Assignments(s.Config))
		witnesses[k].Begin(r.replica)
	}
	var counted []tally.Counted
	for i, slot := range witnesses[0].Slots {
		own := clienttest.Numbered(9, i, int(round.Step))
		signed, held, counts := [][32]byte{own}, [auditMembers][32]byte{own, own, own, own}, own
		if i == culprit {
			signed, held, counts = heldBy(round.Step, own)
		}
		if counts != ([32]byte{}) {
			counted = append(counted, tally.Counted{Batch: slot.Batch, Commitment: counts, Vote: slot.Vote})
		}
		for _, c := range signed {
			a := wire.ResultAnnouncement{Run: clienttest.Run, Step: round.Step, Batch: slot.Batch, Blob: c, Size: 9, Replica: r.replica}
			raw := wire.SignAnnouncement(keyOf(t, slot.Owner), a)
			r.said = append(r.said, raw)
			for k, tallied := range witnesses {
				if held[k] == c {
					receive(t, tallied, raw)
					s := &tallied.Slots[i]
					tallied.Hold(s, s.Candidates[0], a.Size)
				}
			}
		}
	}
	for k, tallied := range witnesses {
		proof, _ := tallied.Witness()
		r.do(t, entry{from: round.Members[k], action: proof})
	}
	r.counted[round.Step] = counted
	r.replica = tally.ExtendReplica(r.replica, round.Step, counted)
}

func keyOf(t *testing.T, id coordinator.ClientID) identity.Key {
	for i := range auditMembers {
		if key := clienttest.Key(i); key.ID() == identity.ID(id) {
			return key
		}
	}
	t.Fatal("not a member of the run")
	return identity.Key{}
}

// receive passes an announcement to a tally as it was sent.
func receive(t *testing.T, tallied *tally.Tally, raw []byte) {
	t.Helper()
	author, a, err := wire.OpenAnnouncement(raw, clienttest.Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := tallied.Receive(author, a, raw); err != nil && !errors.Is(err, tally.ErrEquivocation) && !errors.Is(err, tally.ErrTooManyBefore) {
		t.Errorf("step %d: %v", a.Step, err)
	}
}

// audit decides the rounds of a log from the given announcements. It uses nothing except the log and
// the announcements.
func audit(t *testing.T, log []entry, said [][]byte) map[uint32]tally.Outcome {
	t.Helper()
	all := make(map[uint32]*tally.Tally)
	replay(t, log, func(s *coordinator.State) {
		for i := range s.Epoch.Rounds {
			round := s.Epoch.Rounds[i]
			round.Witnesses = slices.Clone(round.Witnesses)
			if all[round.Step] == nil {
				all[round.Step] = tally.New(round, s.Epoch.StartStep, round.Assignments(s.Config))
			}
			all[round.Step].Renew(round, round.Step < s.Progress.Step)
		}
	})
	for _, raw := range said {
		_, a, err := wire.OpenAnnouncement(raw, clienttest.Run)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, all[a.Step], raw)
	}
	outcomes := make(map[uint32]tally.Outcome)
	for step, tallied := range all {
		if !tallied.Final {
			t.Errorf("step %d is not over", step)
		}
		outcomes[step] = tallied.Decide()
	}
	return outcomes
}

// TestAuditorCountsWhatTheRunCounted checks that a run's log and its announcements, in any order,
// determine the results that became part of the model. An auditor needs neither a running node nor
// the results themselves.
func TestAuditorCountsWhatTheRunCounted(t *testing.T) {
	run := play(t)
	order := rand.New(rand.NewPCG(1, 2))
	for turn := range 20 {
		outcomes := audit(t, run.log, run.said)
		if len(outcomes) != auditSteps {
			t.Fatalf("%d rounds were decided, want %d", len(outcomes), auditSteps)
		}
		replica := tally.StartReplica([32]byte{7})
		for step := uint32(1); step <= auditSteps; step++ {
			o := outcomes[step]
			if !o.Known() || !slices.Equal(o.Counted, run.counted[step]) || len(o.Counted)+len(o.Lost) != auditMembers {
				t.Errorf("order %d, step %d: known: %v; counted %s, want %s", turn, step, o.Known(), fmt.Sprintf("%x", o.Counted), fmt.Sprintf("%x", run.counted[step]))
			}
			replica = tally.ExtendReplica(replica, step, o.Counted)
		}
		if replica != run.replica {
			t.Errorf("order %d: wrong replica", turn)
		}
		order.Shuffle(len(run.said), func(i, j int) { run.said[i], run.said[j] = run.said[j], run.said[i] })
	}
}

// TestOutcomeIsUnknownWithoutAnAnnouncement checks that the outcome of a round is unknown if the
// announcement of a counted result is missing.
func TestOutcomeIsUnknownWithoutAnAnnouncement(t *testing.T) {
	run := play(t)
	for i, raw := range run.said {
		_, a, err := wire.OpenAnnouncement(raw, clienttest.Run)
		if err != nil {
			t.Fatal(err)
		}
		counts := slices.Contains(run.counted[a.Step], tally.Counted{Batch: a.Batch, Commitment: a.Blob, Vote: assign.FullVote})
		o := audit(t, run.log, slices.Delete(slices.Clone(run.said), i, i+1))[a.Step]
		if right := slices.Equal(o.Counted, run.counted[a.Step]); counts && o.Known() || o.Known() && !right {
			t.Errorf("without the result of batch %v of step %d: known %v, right %v", a.Batch, a.Step, o.Known(), right)
		}
	}
}
