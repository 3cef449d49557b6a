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

// Client is the member that an Auditor works for, as far as the Auditor sees it. Its methods are called
// in the member's loop.
type Client interface {
	// State returns the newest state of the run. Nobody modifies it.
	State() *coordinator.State
	// Members returns the other healthy members, beginning with another one in every turn.
	Members() []identity.ID
	// Round returns the tally of a round, and the commitment of the own result once it is announced:
	// no tally of a round that is not followed here any more, or not yet.
	Round(step uint32) (*tally.Tally, tally.Commitment)
	// Model says what the trainer's weights are, and which step was applied to them last.
	Model() (step uint32, m Model)
	// Spare reports whether the training has nothing for the trainer to do in the running round, and in
	// the next one as far as that is known.
	Spare() (now, next bool)
	// SettleTime returns how long the tokens of a batch may take.
	SettleTime() time.Duration
}

// Model says what the weights of a trainer are.
type Model uint8

// Weights of a trainer.
const (
	NoModel  Model = iota // nothing that is known
	Final                 // the model of an epoch whose rounds are all applied
	Replica               // those of the running epoch
	Outgoing              // those of an epoch whose rounds are over, and not all applied
)

// Engine is the trainer, which does one thing at a time. Its methods are called in the member's loop.
type Engine interface {
	// Auditor returns the trainer where results are audited, else nil.
	Auditor() env.Auditor
	// Lag returns the number of rounds after which results are applied.
	Lag() uint32
	// Signed returns the newest step of which this client may have signed a result, in an earlier process
	// too.
	Signed() uint32
	// Idle reports whether the trainer does nothing: only then it can be given something to do.
	Idle() bool
	// Recompute runs a task that recomputes a result of a step: what it returns runs in the loop. It is
	// cancelled when anything else needs the trainer, unless it is urgent.
	Recompute(step uint32, urgent bool, task func(ctx context.Context) func())
	// Yield says that nothing is urgent any more.
	Yield()
	// ResetOptimizer forgets the momentum, and calls done in the loop if that worked.
	ResetOptimizer(done func())
}

// Options are what an Auditor is made of.
type Options struct {
	Key     identity.Key
	Dir     string // for files of this member in all runs; empty: temporary ones, which no process finds again
	Run     string // names the run among them
	Memory  uint64 // bytes of results that are kept in it; the others are in files
	Tasks   *env.Tasks
	Network interface {
		env.Requests
		env.Blobs
	}
	Data   env.DataProvider
	Client Client
	Engine Engine
	// Submit sends an action to the run unless the same is on its way or was answered a moment ago.
	// Accepted runs in the loop.
	Submit func(kind string, about any, action coordinator.Action, accepted func())
	// Needed reports whether the running round can have no quorum if this client leaves.
	Needed func() bool
	Emit   func(event.Body)
	Log    *slog.Logger
}

// Auditor is what a member does, in a run with audits, that others can rely on results: it opens its
// own, looks at those of others when it has time, and votes in trials. Nothing of it is due: who is
// slow, or was away, looks at less.
//
// All methods but those of a Chain and of a Record are called in the member's loop.
type Auditor struct {
	Options
	me coordinator.ClientID

	past     past
	payloads *payloadStore
	openings *openings
	dice     dice
	chain    *Chain              // nil: this client has no result that another could go on from
	seeds    map[uint32][32]byte // that say what is opened of results, by their step
	served   uint32              // step of the round for which the budgets of openings were renewed
	fresh    uint32              // the run must know that the optimizer began not before this step

	thrown    uint32 // step of the round of the newest throw
	reviews   map[resultID]*review
	looked    map[resultID]bool // at results of the newest rounds: they are not drawn again
	soundness soundness
	ofItself  *auditCase                    // that finds the soundness out; nil: none goes on
	sameData  map[coordinator.ClientID]bool // whether a trainer read the same tokens as this client
	trials    map[resultID]*trial
	pressed   uint32        // step of the newest round whose training waited for a trial
	took      time.Duration // of the newest recomputation; of one that was stopped at least so much
}

// New returns an auditor that has done nothing, and removes what an earlier process left.
func New(o Options) *Auditor {
	var own string
	if o.Dir != "" {
		own = filepath.Join(o.Dir, o.Run)
		if err := sweep(o.Dir); err != nil {
			o.Log.Warn("remove what an earlier process kept for audits", "err", err)
		}
	}
	return &Auditor{
		Options: o, me: coordinator.ClientID(o.Key.ID()),
		payloads: newPayloadStore(o.Dir, o.Memory), openings: newOpenings(o.Key.ID(), own, o.Tasks.Now),
		seeds: make(map[uint32][32]byte), reviews: make(map[resultID]*review), looked: make(map[resultID]bool),
		sameData: make(map[coordinator.ClientID]bool), trials: make(map[resultID]*trial),
	}
}

// Serve hands openings to members that ask for them.
func (a *Auditor) Serve() { a.openings.Serve(a.Network) }

// Close removes the files of results. It is called when all tasks have ended.
func (a *Auditor) Close() error { return a.payloads.Close() }

// Begin says which run it is, before anything else is said of it.
func (a *Auditor) Begin(run [32]byte) { a.dice = newDice(a.Key.Private().Seed(), run) }

// Observe takes over what a newer state says: before anything is done about it, as what is to be
// opened has to be known before the next result is made.
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
	needed := a.needed(s.Progress.Step)
	for step := range a.seeds {
		_, kept := a.past.Round(step)
		if !kept && step+coordinator.StoredRounds < min(needed, s.Progress.Step) || step > s.Progress.Step {
			delete(a.seeds, step)
		}
	}
	a.openings.Prune(s.Progress.Step, needed)
	a.findTrials()
	a.admit()
	if s.Progress.Step != a.pressed || s.RunState != coordinator.RoundTrain {
		a.Engine.Yield() // the round of what was urgent is over
	}
}

// admit decides which clients may ask for openings: jurors first, then members. A pending client that is not a juror
// is served nothing: no seat vouches for it.
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
	a.openings.Admit(all, size)
	if s.Progress.Step != a.served {
		a.served = s.Progress.Step
		a.openings.Renew()
	}
}

// needed returns the step from which on rounds are needed for open trials, or the given one.
func (a *Auditor) needed(step uint32) uint32 {
	for key := range a.trials {
		step = min(step, key.Step)
	}
	return step
}

// Advance does what there is to do. It is called after every event.
func (a *Auditor) Advance() {
	if a.Client.State().Config.VerificationPercent == 0 || a.Engine.Auditor() == nil {
		return
	}
	a.follow(a.Chain()) // although no training waits for that
	for _, key := range slices.SortedFunc(maps.Keys(a.trials), resultID.Compare) {
		a.judge(a.trials[key])
	}
	a.audit()
}

// weights returns the newest step that is applied to the trainer's weights; false while they are of
// no step, or of none that is kept here.
func (a *Auditor) weights() (step uint32, ok bool) {
	switch step, model := a.Client.Model(); model {
	case Replica:
		return step, true
	case Final: // of the epoch that this client was in last
		rounds := a.past.Rounds(1)
		return step, len(rounds) > 0 && rounds[0].Step == step
	}
	return 0, false
}

// hasApplied reports whether nothing more is heard of a step: its round is applied, or the client takes
// no part in the epoch.
func (a *Auditor) hasApplied(step uint32) bool {
	newest, _ := a.Client.Model()
	return !a.inEpoch() || newest >= step
}

// inEpoch reports whether the client follows the rounds of an epoch.
func (a *Auditor) inEpoch() bool {
	_, model := a.Client.Model()
	return model == Replica || model == Outgoing
}

// ForgetRounds forgets all rounds: the model that follows does not go on from there.
func (a *Auditor) ForgetRounds() { a.payloads.Drop(a.past.Forget()...) }

// clientOf returns what the run knows of a client, the zero value of one that it does not.
func (a *Auditor) clientOf(id coordinator.ClientID) coordinator.Client {
	s := a.Client.State()
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending, s.Departed} {
		if i := slices.IndexFunc(clients, func(c coordinator.Client) bool { return c.ID == id }); i >= 0 {
			return clients[i]
		}
	}
	return coordinator.Client{}
}
