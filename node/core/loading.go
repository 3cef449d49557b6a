package core

import (
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of loading a model.
type (
	// Warmup compares a member's trainer with the epoch that Warmup prepares. The caller repeats it after
	// every other event in Warmup, once Close is complete.
	Warmup struct {
		Trainer
		Replica bool // the member has a replica of the epoch
	}

	// Obtained is the result of a Load.
	Obtained struct {
		Load
		Fault Fault
		Err   error
		Tries int // attempts to load the model, with this one
	}
)

// Trainer describes the model that a member's trainer holds.
type Trainer struct {
	Held      *Model   // nil: the weights match no model
	Start     [32]byte // replica hash of an epoch that starts with Held
	Redefined bool     // the trainer was built for another configuration of the run
	Prepared  bool     // the optimizer is set up for Held and the running epoch
}

// Fault is the reason why a Load failed.
type Fault uint8

// Faults of a Load.
const (
	NoFault       Fault = iota
	Cancelled           // the Load is not needed any more
	ResultsDiffer       // the results that peers name do not lead to the model
	NoMemory            // the memory has no room for parts of the model
	NoHolder            // no source has the model
	OtherFault
)

// Reports about loading a model.
type (
	// Rebuilds means that the client builds its trainer again, for a new configuration of the run.
	Rebuilds struct{ Epoch uint32 }

	// LoadsWhole means that the next attempt loads the whole model, because results did not lead to it.
	LoadsWhole struct{ Err error }

	// LacksModel means that no source has the model, and that the client tries again.
	LacksModel struct {
		Err   error
		Tries int
	}
)

func (Warmup) event()   {}
func (Obtained) event() {}

func (Rebuilds) report()   {}
func (LoadsWhole) report() {}
func (LacksModel) report() {}

// modelPause is the pause between two attempts to get a model that no peer provided.
const modelPause = time.Second

// loading decides when a member loads a model, and from which sources.
type loading struct {
	notBefore time.Time // earliest time of the next attempt
	whole     [32]byte  // digest of a model that is loaded whole, because results cannot lead to it
}

// warmup gets the model that the epoch starts from, prepares the optimizer, and enters the epoch. Then
// the member reads the tokens of its first batch.
func (l *loading) warmup(c *common, e Warmup) {
	if c.Leave.Begun() || !c.isMember() {
		return
	}
	if !e.Replica {
		switch {
		case !e.loaded(c):
			l.load(c, e.Trainer)
			return
		case !c.Jobs.Idle():
			c.Jobs.cancelRecomputation(true)
			return
		case !e.Prepared:
			c.ready.Next = Prepare{}
			return
		}
		c.ready.Enter = &Entry{c.state.Epoch.StartStep - 1, e.Start, e.Start}
	}
	c.ready.ReadFirst = true
}

// loaded reports whether the trainer holds the run's checkpoint, for the run's configuration.
func (t *Trainer) loaded(c *common) bool {
	run := c.state.Model.Checkpoint
	switch {
	case t.Redefined || t.Held == nil:
		return false
	case run.FromPeers():
		return t.Held.Digest == run.Digest
	}
	return t.Held.Origin == run
}

// load loads the run's checkpoint once the trainer is idle. A recomputation stops for it.
func (l *loading) load(c *common, t Trainer) {
	c.Jobs.cancelRecomputation(true)
	if !c.Jobs.Idle() || c.now.Before(l.notBefore) {
		return
	}
	switch {
	case t.Redefined:
		c.report(Rebuilds{c.state.Progress.Epoch})
	case t.Held != nil && t.Held.Origin.Kind == 0: // trained here, in the previous epoch
		c.ready.Desynchronise = "the run recorded a different checkpoint than this client's"
	}
	run := c.state.Model.Checkpoint
	c.ready.Next = Load{From: run, Rebuild: t.Redefined, Sources: l.sources(c, run, t.Redefined, false)}
}

// sources returns the possible sources of a model, the cheapest first. running means that it is an
// intermediate checkpoint of the running epoch, which archives do not have. After a change of the
// run's configuration, an earlier model may have another shape, so that results do not lead from it.
func (l *loading) sources(c *common, of coordinator.Checkpoint, redefined, running bool) (from []Source) {
	if !of.FromPeers() {
		return []Source{FirstModel}
	}
	if redefined {
		l.whole = of.Digest
	}
	if c.Holdings.Shares(of.Digest) {
		from = append(from, SharedModel)
	}
	from = append(from, OwnCopy, OwnDisk)
	if l.whole != of.Digest {
		from = append(from, OwnResults)
	}
	if from = append(from, OtherMembers); !running {
		from = append(from, Archives)
	}
	return from
}

// obtained handles the result of a Load. The client gives up if another attempt would not help.
func (l *loading) obtained(c *common, e Obtained) {
	if e.Fault == ResultsDiffer {
		l.whole = e.Wanted().Digest
	}
	if e.Taken.Step != 0 { // the return to the epoch decides
		return
	}
	switch e.Fault {
	case ResultsDiffer:
		c.report(LoadsWhole{e.Err})
	case NoMemory:
		c.ready.Fail = fmt.Errorf("get the model from peers: %w", e.Err)
	case NoHolder:
		l.notBefore = c.now.Add(modelPause)
		c.report(LacksModel{e.Err, e.Tries})
	case OtherFault:
		c.ready.Fail = fmt.Errorf("load the model: %w", e.Err)
	}
}
