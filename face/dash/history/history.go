package history

import (
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// Limits of a History.
const (
	maxStretches   = 4096
	maxPhases      = 600
	maxMembers     = 1024
	MaxEvents      = 2000
	maxCheckpoints = 200
	maxUploads     = 100
	maxTrials      = 200 // closed trials
)

// phaseCount is the number of phases, from coordinator.Uninitialized to Paused.
const phaseCount = int(coordinator.Paused) + 1

// Entry is one entry of a run's log.
type Entry struct {
	Number uint64 // in the log
	Time   uint64 // Unix time in milliseconds; 0 if the log has no time for it
	Actor  coordinator.ClientID
	Action coordinator.Action // nil for a tick, and for the genesis
	Name   string             // of the action
}

// EntryOf converts a record of a server's log to an Entry. ok is false for a digest record, which does
// not change the state.
func EntryOf(number uint64, r follow.Record) (e Entry, ok bool) {
	e.Number = number
	switch r.Kind {
	case follow.KindTick:
		e.Time = r.Now
	case follow.KindAction:
		e.Actor, e.Action, e.Name = coordinator.ClientID(r.Action.From), r.Action.Action, follow.ActionName(r.Action.Action)
	case follow.KindDigest:
		return e, false
	}
	return e, true
}

// Spent is the time that a run spent in each phase, in milliseconds.
type Spent [phaseCount]uint64

// Phase is a period in one phase.
type Phase struct {
	Phase uint8  `json:"p"` // 0 Uninitialized, 1 WaitingForMembers, 2 Warmup, 3 RoundTrain, 4 RoundWitness, 5 Cooldown, 6 Finished, 7 Paused
	Epoch uint32 `json:"e"` // epoch of the phase
	Step  uint32 `json:"s"` // step of the phase
	Start uint64 `json:"t"` // Unix, milliseconds
	End   uint64 `json:"u"` // 0 for the current phase
}

// Checkpoint is a model that the run recorded.
type Checkpoint struct {
	Entry  uint64 `json:"entry"` // log entry with the decisive report
	Time   uint64 `json:"time"`  // Unix, milliseconds
	Epoch  uint32 `json:"epoch"`
	Step   uint32 `json:"step"`
	Digest string `json:"digest"` // of the model

	HeldOut       uint32 `json:"held_out,omitempty"`        // median of the losses on held-out data that members claim, in units of coordinator.Claim; 0: none
	HeldOutSpread uint32 `json:"held_out_spread,omitempty"` // median of the distances of these claims from their median
	HeldOutClaims int    `json:"held_out_claims,omitempty"` // members that claim a loss
	HeldOutFar    int    `json:"held_out_far,omitempty"`    // members whose claim is far from the median
}

// Upload is a reported location of a checkpoint.
type Upload struct {
	Entry    uint64 `json:"entry"`
	Time     uint64 `json:"time"`
	Reporter string `json:"reporter"`
	Step     uint32 `json:"step"`
	Kind     string `json:"kind"`
	Repo     string `json:"repo"`
	Revision string `json:"revision"`
	Digest   string `json:"digest"`
}

// History is the history of a run. Its fields are exported so that it can be saved in a file. Only
// See modifies them.
type History struct {
	Seen    uint64 // entries
	Newest  uint64 // number of the newest entry
	Began   uint64 // first time in the log
	Now     uint64 // newest time in the log
	Spent   Spent
	Tokens  uint64 // of results that counted
	Rounds  Rounds
	Phases  []Phase // oldest first
	Members map[string]*Member
	Events  []Event // oldest first
	Dropped uint64  // events that were removed

	Checkpoints []Checkpoint
	Uploads     []Upload
	Open        []Trial // at most coordinator.maxTrials
	Trials      []Trial // closed trials, oldest first

	Cursor Cursor
}

// Cursor is the state that See compares the next entry with.
type Cursor struct {
	Begun        bool
	RunState     coordinator.RunState
	Start        uint64 // of that state
	Step         uint32
	Epoch        uint32
	Checkpoint   [32]byte
	RollbackGaps int   `json:"Lapses"` // the name in files that package follow keeps
	Spent        Spent // since the newest round ended
}

// See processes the next entry of the log and the state after it. It keeps neither.
func (h *History) See(e Entry, s *coordinator.State) {
	if h.Members == nil {
		h.Members = make(map[string]*Member)
	}
	if h.Now = max(h.Now, e.Time, s.StateStart); h.Began == 0 && h.Now > 0 {
		h.Began, h.Cursor.Start = h.Now, h.Now // a new run has no time before its first tick
		for i := range h.Phases {
			h.Phases[i].Start = h.Now
		}
	}
	e.Time = h.Now
	h.Seen, h.Newest = h.Seen+1, e.Number
	if !h.Cursor.Begun {
		h.Cursor = Cursor{
			Begun: true, RunState: s.RunState, Start: h.Now, Step: s.Progress.Step, Epoch: s.Progress.Epoch,
			Checkpoint: s.Model.Checkpoint.Digest, RollbackGaps: len(s.RollbackGaps),
		}
		h.Phases = []Phase{{Phase: uint8(s.RunState), Epoch: s.Progress.Epoch, Step: s.Progress.Step, Start: h.Now}}
		h.note(e, Event{Kind: eventBegan}, s)
		return
	}
	if e.Action != nil {
		h.act(e, s)
	}
	h.follow(e, s)
	if s.RunState != h.Cursor.RunState {
		h.move(e, s)
	}
}

// move records a change of the phase.
func (h *History) move(e Entry, s *coordinator.State) {
	c := &h.Cursor
	took := h.Now - min(c.Start, h.Now)
	h.Spent[c.RunState] += took
	c.Spent[c.RunState] += took
	if n := len(h.Phases); n > 0 {
		h.Phases[n-1].End = h.Now
	}
	if c.RunState == coordinator.RoundWitness && s.Progress.Step > c.Step {
		h.endRound(e, s)
	}
	if c.RunState == coordinator.Cooldown {
		h.endEpoch(e, s)
	}
	h.Phases = keepNewest(append(h.Phases, Phase{Phase: uint8(s.RunState), Epoch: s.Progress.Epoch, Step: s.Progress.Step, Start: h.Now}), maxPhases)
	h.noticeAll(e, s)
	switch s.RunState {
	case coordinator.Paused:
		h.note(e, Event{Kind: eventPaused}, s)
	case coordinator.Finished:
		h.note(e, Event{Kind: eventFinished}, s)
	}
	if c.RunState == coordinator.Warmup && s.RunState == coordinator.WaitingForMembers {
		h.note(e, Event{Kind: eventTooFew}, s)
	}
	c.RunState, c.Start, c.Step, c.Epoch = s.RunState, h.Now, s.Progress.Step, s.Progress.Epoch
}

// endRound adds the round that has just ended.
func (h *History) endRound(e Entry, s *coordinator.State) {
	round := s.RoundOfStep(h.Cursor.Step)
	if round == nil {
		return
	}
	r := Stretch{
		First: round.Step, Rounds: 1, End: h.Now, Spent: h.Cursor.Spent, Members: uint64(len(round.Members)),
		Fewest: uint32(len(round.Members)), Most: uint32(len(round.Members)),
		Witnesses: uint64(len(round.Witnesses)), Elected: uint64(round.WitnessesElected),
	}
	h.Cursor.Spent = Spent{}
	quorum := round.HasQuorum()
	results := make(map[int]*result, len(round.Members))
	for _, batch := range round.Assignments(s.Config) {
		of, judged := results[batch.Member]
		if !judged {
			held := quorum && round.Score(round.Members[batch.Member]) >= int(round.WitnessesNeeded)
			of = &result{held: held, counts: held && !round.Warming.Has(batch.Member)}
			results[batch.Member] = of
		}
		r.Batches++
		if of.counts {
			tokens := batch.Batch.Len() * uint64(s.Model.MaxSeqLen)
			r.Counted++
			r.Tokens += tokens
			of.tokens += tokens
		}
	}
	for member, of := range results {
		h.trained(round.Members[member], *of)
	}
	h.Tokens += r.Tokens
	for _, member := range round.ElectedWitnesses(s.Config) {
		h.member(round.Members[member], s).Elected++
	}
	if quorum {
		h.claimed(round, &r, s)
	} else {
		h.note(e, Event{Kind: eventNoQuorum, Step: round.Step, Count: len(round.Witnesses), Of: int(round.WitnessesNeeded)}, s)
	}
	h.Rounds.add(r)
}

// claimed adds the claims that the witnesses of a round make about their training.
func (h *History) claimed(round *coordinator.Round, r *Stretch, s *coordinator.State) {
	losses := round.Losses()
	if losses.Count == 0 {
		return
	}
	r.Claimed, r.Losses, r.Spreads, r.Speeds = 1, uint64(losses.Median), uint64(losses.Spread), uint64(round.Speeds().Median)
	r.Claims, r.Far = uint64(losses.Count), uint64(len(losses.Far))
	for i := range round.Witnesses {
		w := &round.Witnesses[i]
		if w.Claim.Loss == 0 {
			continue
		}
		id := round.Members[w.Member]
		m := h.member(id, s)
		m.ClaimedStep, m.ClaimedLoss, m.ClaimedSpeed = round.Step, w.Claim.Loss, w.Claim.Speed
		m.Claims++
		if slices.Contains(losses.Far, id) {
			m.Far++
		}
	}
}

// endEpoch records the model that the members agreed on.
func (h *History) endEpoch(e Entry, s *coordinator.State) {
	checkpoint := s.Model.Checkpoint
	agreed := checkpoint.Digest != h.Cursor.Checkpoint
	last := agreed && checkpoint.Step == s.Progress.Step-1 // otherwise it is an intermediate checkpoint, which contradicts no report
	reporters := s.Reporters(s.Progress.Step - 1)
	for i := range reporters {
		client := &reporters[i]
		member := h.member(client.ID, s)
		member.Reports++
		if last && client.Report.Digest != checkpoint.Digest {
			member.Disagreed++
			h.note(e, Event{Kind: eventDisagreed, Subject: name(client.ID), Detail: hex(client.Report.Digest)}, s)
		}
	}
	if !agreed {
		h.note(e, Event{Kind: eventNoCheckpoint, Count: len(reporters)}, s)
		return
	}
	h.Cursor.Checkpoint = checkpoint.Digest
	losses := s.HeldOut()
	h.Checkpoints = keepNewest(append(h.Checkpoints, Checkpoint{
		Entry: e.Number, Time: h.Now, Epoch: h.Cursor.Epoch, Step: checkpoint.Step, Digest: hex(checkpoint.Digest),
		HeldOut: losses.Median, HeldOutSpread: losses.Spread, HeldOutClaims: losses.Count, HeldOutFar: len(losses.Far),
	}), maxCheckpoints)
	h.note(e, Event{Kind: eventCheckpoint, Step: checkpoint.Step, Detail: hex(checkpoint.Digest)}, s)
}

// keepNewest drops the first elements of a list that is too long. It rarely moves memory.
func keepNewest[T any](list []T, limit int) []T {
	if len(list) <= limit {
		return list
	}
	return append(list[:0], list[len(list)-limit:]...)
}

func name(id coordinator.ClientID) string { return identity.ID(id).String() }
