package credits

import (
	"encoding/hex"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/wire"
)

// maxMembers bounds the members of a ledger. Results of further members are credited to the zero key.
const maxMembers = 4096

// Result is a counted result.
type Result struct {
	Owner     coordinator.ClientID
	Sequences uint64
}

// Round is a round that the client has applied.
type Round struct {
	Step    uint32
	Results []Result
	Names   map[identity.ID]string // display names, as the host reports them
	Losses  coordinator.Claims
	Start   wire.Head // of the run's log at the start of the round; zero: unknown
}

// Ledger contains the credits of all members. The zero value is empty. A Ledger must not be used
// concurrently.
type Ledger struct {
	first, last, rounds uint32
	members             map[coordinator.ClientID]*checkpoint.CardMember
	loss                float64 // of the round lossOf
	lossOf              uint32
	start               wire.Head // of the round last
}

// Round adds a round. It ignores a round that is not later than all rounds before.
func (l *Ledger) Round(r Round) {
	if r.Step <= l.last {
		return
	}
	if l.members == nil {
		l.first, l.members = r.Step, make(map[coordinator.ClientID]*checkpoint.CardMember)
	}
	l.last, l.start = r.Step, r.Start
	l.rounds++
	credited := make(map[*checkpoint.CardMember]bool)
	for _, result := range r.Results {
		m := l.member(result.Owner, r.Names[identity.ID(result.Owner)])
		if m.Sequences += result.Sequences; !credited[m] {
			credited[m] = true
			m.Rounds++
		}
	}
	if r.Losses.Count > 0 {
		l.loss, l.lossOf = float64(r.Losses.Median)/coordinator.LossUnit, r.Step
	}
}

// member returns the entry of a member. It adopts a valid name.
func (l *Ledger) member(id coordinator.ClientID, name string) *checkpoint.CardMember {
	m := l.members[id]
	if m == nil && len(l.members) >= maxMembers {
		id, name = coordinator.ClientID{}, "other members"
		m = l.members[id]
	}
	if m == nil {
		m = &checkpoint.CardMember{ID: identity.ID(id).String()}
		l.members[id] = m
	}
	if plain.CheckName(name, coordinator.MaxMemberName) == nil {
		m.Name = name
	}
	return m
}

// Card describes the model after a step. s is a state of the run, and run is the run's hash.
func (l *Ledger) Card(s *coordinator.State, run [32]byte, step uint32) checkpoint.Card {
	c := checkpoint.Card{Run: hex.EncodeToString(run[:]), Counted: checkpoint.CardRounds{First: l.first, Last: l.last, Rounds: l.rounds}}
	c.Counted.Complete = l.first <= s.OriginStep && l.last-l.first+1 == l.rounds
	c.Title, c.About = config.NameOf(s.Model.Definition)
	if at := s.Model.Checkpoint; at.Kind == coordinator.CheckpointHub || at.Origin == coordinator.CheckpointHub {
		c.BaseModel = at.Repo
	}
	if definition, err := config.DecodeModel(s.Model.Definition); err == nil { // otherwise the card omits these facts
		c.Optimizer = optimizer(definition.Optimizer)
		c.Data, c.Datasets = sources(definition.DataLocations)
	}
	for _, m := range l.members {
		c.Members = append(c.Members, *m)
	}
	if l.lossOf > 0 && l.lossOf <= step {
		c.Loss, c.LossOf = l.loss, fmt.Sprintf("median of the losses that members reported for round %d", l.lossOf)
	}
	if l.last == step && l.start.Index > 0 {
		c.LogEntry, c.LogHash = l.start.Index-1, hex.EncodeToString(l.start.Hash[:])
	}
	return c
}

// optimizer describes an optimizer.
func optimizer(o config.Optimizer) string {
	switch {
	case o.Distro != nil:
		return fmt.Sprintf("DisTrO, %d coefficients of each chunk", o.Distro.CompressionTopK)
	case o.LocalSteps != nil:
		inner := o.LocalSteps.InnerOptimizer
		if inner == "" {
			inner = config.AdamWName
		}
		return fmt.Sprintf("%d local steps of %s per round", o.LocalSteps.InnerSteps, inner)
	case o.Dummy != nil:
		return "none, a test of the network"
	}
	return ""
}
