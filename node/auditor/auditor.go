package auditor

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// Client is the Auditor's view of the member that it works for. Its methods are called in the
// member's loop.
type Client interface {
	// State returns the newest state of the run. The caller must not modify it.
	State() *coordinator.State
	// Members returns the other healthy members. The first one changes with every turn.
	Members() []identity.ID
	// Round returns the tally of a round, and the commitment of this client's result once it is
	// announced. It returns nil for a round that the client does not follow any more, or not yet.
	Round(step uint32) (*tally.Tally, tally.Commitment)
	// Model returns the state of the trainer's weights, and the step that was applied to them last.
	Model() (step uint32, m Model)
	// Spare reports whether the trainer has time for audits, because it does not train, in the
	// running round and, as far as that is known, in the next one.
	Spare() (now, next bool)
	// CompletionTime returns how long reading the tokens of a batch may take.
	CompletionTime() time.Duration
}

// Model is the state of a trainer's weights.
type Model uint8

// States of a trainer's weights.
const (
	NoModel  Model = iota // unknown weights
	Final                 // the model of an epoch whose rounds have all been applied
	Replica               // the weights of the running epoch
	Outgoing              // the weights of an epoch whose rounds are over, but not all applied
)

// Engine controls the trainer, which runs one operation at a time. The methods of Engine are called
// in the member's loop.
type Engine interface {
	// Auditor returns the trainer in a run with audits, else nil.
	Auditor() env.Auditor
	// Lag returns the number of rounds after which results are applied.
	Lag() uint32
	// Signed returns the newest step for which this client, or an earlier process of it, may have
	// signed a result.
	Signed() uint32
	// Idle reports whether the trainer is idle. Only an idle trainer accepts work.
	Idle() bool
	// Recompute runs a task that recomputes a result of a step. The loop then runs the function that
	// the task returned. If other work needs the trainer, the task is cancelled, unless urgent is
	// true.
	Recompute(step uint32, urgent bool, task func(ctx context.Context) func())
	// Yield lets other work cancel a running recomputation, even if it was urgent.
	Yield()
	// ResetOptimizer resets the momentum to zero. After success it calls done in the loop.
	ResetOptimizer(done func())
}

// Options are the settings and dependencies of an Auditor.
type Options struct {
	Key     identity.Key
	Dir     string // for files of this member in all runs; empty: temporary files, which are lost at a restart
	Run     string // name of the run in file names
	Memory  uint64 // bytes of results to keep in memory; other results are in files
	Tasks   *env.Tasks
	Network interface {
		env.Requests
		env.Blobs
	}
	Data   env.DataProvider
	Client Client
	Engine Engine
	// Submit sends an action to the run. kind and about identify the action: Submit does nothing if
	// the same action is in flight or was answered a moment ago. If the run accepts the action,
	// accepted runs in the loop.
	Submit func(kind string, about any, action coordinator.Action, accepted func())
	// Needed reports whether the running round would have no quorum without this client.
	Needed func() bool
	Emit   func(event.Body)
	Log    *slog.Logger
}

// Auditor does the audit work of a member, in a run with audits. It opens this member's results,
// audits other members' results when it has time, and votes in trials. No part of this work is
// obligatory: a member that is slow or was away audits less.
//
// All methods except the methods of Chain and Record are called in the member's loop.
type Auditor struct {
	Options
	me coordinator.ClientID

	past     past
	payloads *payloadStore
	openings *openings
	random   privateRandom
	chain    *Chain              // this client's results; nil: none, so the next result starts with zero momentum
	seeds    map[uint32][32]byte // audit seeds of results, by step
	served   uint32              // step of the round for which the budgets of openings were renewed
	fresh    uint32              // this client may train once the run knows that its optimizer started at this step or later

	thrown    uint32 // step of the round of the newest draw
	reviews   map[resultID]*review
	looked    map[resultID]bool // audited results of the newest rounds, which are not drawn again
	soundness soundness
	ofItself  *auditCase                    // determines the soundness; nil: not running
	sameData  map[coordinator.ClientID]bool // whether a trainer read the same tokens as this client
	trials    map[resultID]*trial
	preempted uint32        // step of the newest round whose training waited for a trial
	took      time.Duration // duration of the newest recomputation in all its pieces, even if it was cancelled

	unfinished *auditCase // whose recomputation was interrupted last, so that the trainer may keep its progress; nil: none
}

// New returns an Auditor that has done nothing yet, and removes files that an earlier process left.
func New(o Options) *Auditor {
	var own string
	if o.Dir != "" {
		own = filepath.Join(o.Dir, o.Run)
		if err := sweep(o.Dir); err != nil {
			o.Log.Warn("cannot remove the audit files of an earlier process", "err", err)
		}
	}
	return &Auditor{
		Options: o, me: coordinator.ClientID(o.Key.ID()),
		payloads: newPayloadStore(o.Dir, o.Memory), openings: newOpenings(o.Key.ID(), own, o.Tasks.Now),
		seeds: make(map[uint32][32]byte), reviews: make(map[resultID]*review), looked: make(map[resultID]bool),
		sameData: make(map[coordinator.ClientID]bool), trials: make(map[resultID]*trial),
	}
}

// Serve starts to serve openings to members and jurors that request them.
func (a *Auditor) Serve() { a.openings.serve(a.Network) }

// Close removes the files of results. All tasks must have ended.
func (a *Auditor) Close() error { return a.payloads.Close() }

// Begin sets the run. It must be called first.
func (a *Auditor) Begin(run [32]byte) { a.random = newPrivateRandom(a.Key.Private().Seed(), run) }

// Observe processes a newer state. The client calls it before it reacts to the state itself, because
// the client must know which chunks of its newest result to open before it makes the next one.
func (a *Auditor) Observe() {
	s := a.Client.State()
	if s.Config.VerificationPercent == 0 {
		return
	}
	a.fresh, a.thrown = min(a.fresh, s.Progress.Step+1), min(a.thrown, s.Progress.Step+1) // the host may have gone back
	for i := range s.Epoch.Rounds {
		if seed, ok := s.AuditSeed(s.Epoch.Rounds[i].Step); ok {
			a.seeds[s.Epoch.Rounds[i].Step] = seed
		}
	}
	a.findTrials() // first, so that nothing that a new trial needs is dropped
	needed := a.needed(s.Progress.Step)
	for step := range a.seeds {
		_, kept := a.past.round(step)
		if !kept && step+coordinator.StoredRounds < min(needed, s.Progress.Step) || step > s.Progress.Step {
			delete(a.seeds, step)
		}
	}
	a.openings.prune(s.Progress.Step, func(step uint32) bool { return a.trials[resultID{a.me, step}] != nil })
	a.admit()
	if s.Progress.Step != a.preempted || s.RunState != coordinator.RoundTrain {
		a.Engine.Yield() // the round that granted time for an urgent recomputation is over
	}
}

// admit decides which clients may request openings: jurors and members. Jurors are served first. Other
// pending clients are not served: a client without a seat has nothing to lose if it abuses requests.
func (a *Auditor) admit() {
	s, all := a.Client.State(), make(audience)
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; c.State == coordinator.Healthy {
			all[identity.ID(c.ID)] = rankMember
		}
	}
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Pending} {
		for i := range clients {
			if clients[i].Juror != 0 {
				all[identity.ID(clients[i].ID)] = rankJuror
			}
		}
	}
	size := 0
	if trainer := a.Engine.Auditor(); trainer != nil {
		size = partSize(trainer)
	}
	a.openings.admit(all, size)
	if s.Progress.Step != a.served {
		a.served = s.Progress.Step
		a.openings.renew()
	}
}

// needed returns the first step whose round this client needs to judge open trials, at most the given one. A trial that
// this client cannot judge needs no round. Otherwise an accusation about an old step would make all members keep the
// results of all later rounds.
func (a *Auditor) needed(step uint32) uint32 {
	for key, j := range a.trials {
		if !j.isOver() && a.mayJudge(j) {
			step = min(step, key.Step)
		}
	}
	return step
}

// Advance starts the work that is due. The client calls it after every event.
func (a *Auditor) Advance() {
	if a.Client.State().Config.VerificationPercent == 0 || a.Engine.Auditor() == nil {
		return
	}
	a.dropUnfinished()
	a.follow(a.Chain()) // members expect the opening even if this client does not train next
	for _, key := range slices.SortedFunc(maps.Keys(a.trials), resultID.compare) {
		a.judge(a.trials[key])
	}
	a.audit()
}

// weights returns the newest step that is applied to the trainer's weights. ok is false if the weights
// match no step, or if the auditor does not keep that step's round.
func (a *Auditor) weights() (step uint32, ok bool) {
	switch step, model := a.Client.Model(); model {
	case Replica:
		return step, true
	case Final: // the weights may be from an epoch before the kept rounds
		rounds := a.past.Rounds(1)
		return step, len(rounds) > 0 && rounds[0].Step == step
	}
	return 0, false
}

// hasApplied reports whether nothing more will be learned about a step: its round is applied, or
// the client is not in the epoch.
func (a *Auditor) hasApplied(step uint32) bool {
	newest, _ := a.Client.Model()
	return !a.inEpoch() || newest >= step
}

// inEpoch reports whether the client follows the rounds of an epoch.
func (a *Auditor) inEpoch() bool {
	_, model := a.Client.Model()
	return model == Replica || model == Outgoing
}

// ForgetRounds forgets all rounds. The client calls it when its next model does not continue from
// them.
func (a *Auditor) ForgetRounds() { a.payloads.drop(a.past.forget()...) }

// clientOf returns the run's entry of a client, or the zero value if the run does not know it.
func (a *Auditor) clientOf(id coordinator.ClientID) coordinator.Client {
	s := a.Client.State()
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending, s.Departed} {
		if i := slices.IndexFunc(clients, func(c coordinator.Client) bool { return c.ID == id }); i >= 0 {
			return clients[i]
		}
	}
	return coordinator.Client{}
}
