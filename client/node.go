package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client/auditor"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/exchange"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/client/keep"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
	"golang.org/x/sync/errgroup"
)

// ErrDesynchronised says that the client ended with another model than the run.
var ErrDesynchronised = errors.New("the model differs from the run's")

// Node is one client of a run. Everything in it belongs to the goroutine of Run; what takes
// time runs beside it and hands back what is to be done.
type Node struct {
	Options
	tasks *env.Tasks

	run     view             // the newest state of the run
	seat    seat             // the own place in it
	actions *submitter       // actions on their way to the coordinator
	engine  engine           // the trainer, and what it is doing
	rounds  roundStates      // the newest rounds, and the replica that they are applied to
	fetcher *fetch.Fetcher   // results of peers, on their way here
	models  *handover.Models // the model, and who gets it
	auditor *auditor.Auditor // what it does so that all can rely on results
	keeper  *keep.Keeper     // what is on the disk
	gossip  *gossipReader    // what peers say
	store   *exchange.Store  // what peers may ask for
	report  *reporter
	end     *ending // nil: it goes on
}

// ending is how a client ended.
type ending struct{ err error }

// replica is the client's place in an epoch whose model it holds.
type replica struct {
	epoch   epochKey
	hash    [32]byte // after step
	before  [32]byte // after step - 1; in the first round hash
	step    uint32   // newest applied; before the first round the epoch's start step - 1
	closing bool     // the epoch's rounds are over

	coldSteps   uint32   // of the epoch's cold start
	from        [32]byte // digest of the model that the epoch began with
	otherModels bool     // members were found to have begun from another one
}

// New checks the options and returns a client that has not begun anything.
func New(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	log := o.Logger.With("client", o.Key.ID().Short())
	tasks := &env.Tasks{Runtime: o.Runtime}
	if o.Runtime == nil {
		tasks.Runtime = newGoroutines(tasks)
	}
	n := &Node{
		Options: o,
		tasks:   tasks,
		run:     view{me: o.Key.ID()},
		engine:  engine{tasks: tasks},
		rounds:  roundStates{of: make(map[uint32]*roundState)},
		store:   exchange.NewStore(o.Network.Drop),
		report:  &reporter{events: o.Events, log: log, network: o.Network, backend: o.Backend},
	}
	n.engine.signing = newSigning(o.folder())
	n.engine.reader = &reader{tasks: tasks, data: o.Data, log: log, fail: n.fail, batches: make(map[assign.BatchID]*reading)}
	n.actions = &submitter{tasks: tasks, backend: o.Backend, log: log, id: n.run.me, kinds: make(map[string]*pendingAction)}
	n.gossip = &gossipReader{
		tasks: tasks, network: o.Network, announcements: o.Announcements, shelf: n.store.Shelf,
		heard: make(chan announcement, heardRoom), misbehaved: o.Misbehaved, log: log,
	}
	n.store.NeededBy(n.rounds.eachBlob)
	n.auditor = newAuditor(n)
	n.models = handover.NewModels(n.store, &handover.Options{
		Network: o.Network, Tasks: tasks, Folder: o.folder(), Log: log,
		ParameterRequests: o.ParameterRequests, Downloads: o.Downloads, Emit: n.report.emit,
		NewTrainer: o.NewTrainer, Initial: o.Initial, Archive: o.Archive,
	})
	n.fetcher = fetch.New(fetch.Options{
		ID: n.run.me, Tasks: tasks, Blobs: o.Network, Owner: fetched{&n.rounds, n.store, n.report}, Log: log, Limit: o.Downloads,
	})
	n.seat.rejoin = &rejoin{engine: &n.engine, models: n.models, store: n.store, auditor: n.auditor, report: n.report}
	n.keeper = keep.NewKeeper(keep.Options{
		Folder: o.folder(), Keep: o.KeepCheckpoints, Saved: o.Saved, Tasks: tasks, Emit: n.report.emit, Log: log,
	})
	return n, nil
}

// Run takes part in the run until it is finished (nil), ctx is done (its cause, after
// withdrawing), or the client cannot go on. All goroutines have ended when it returns.
// A Node runs once, on goroutines of its own: not with a Runtime among its options.
func (n *Node) Run(ctx context.Context) error {
	own, ok := n.tasks.Runtime.(*goroutines)
	if !ok {
		return fmt.Errorf("%w: a client with a Runtime is driven by Step", ErrInvalidOptions)
	}
	work, cancel := context.WithCancel(ctx)
	defer func() {
		if err := n.auditor.Close(); err != nil {
			n.report.log.Warn("remove results that were kept for audits", "err", err)
		}
	}()
	defer own.tasks.Wait()
	defer cancel()
	if err := n.Open(work); err != nil {
		return fmt.Errorf("run client: %w", err)
	}
	ticks := time.NewTicker(heartbeat)
	defer ticks.Stop()
	for n.end == nil {
		select {
		case <-ctx.Done():
			if n.seat.parting.said {
				return nil // it only stayed for others
			}
			n.withdraw(ctx)
			if loss := n.run.loss(newestStep(n.rounds.replica, n.models.Held), n.CheckpointDir != ""); loss != "" {
				n.report.log.Warn(loss)
			}
			return context.Cause(ctx)
		case update, open := <-n.Backend.Updates():
			if !open && n.seat.parting.said {
				return nil
			}
			if !open {
				err := fmt.Errorf("run client: %w", cmp.Or(n.Backend.Err(), backend.ErrClosed))
				n.report.emit(event.Failed{Error: err.Error()})
				return err
			}
			n.observe(update)
		case u := <-n.gossip.heard:
			n.hear(u)
			n.hearWaiting()
		case proceed := <-own.posts:
			proceed()
		case <-ticks.C:
		}
		n.reconcile()
	}
	return n.end.err
}

// Open begins the client's part in the run for a caller that has a Runtime of its own and
// drives the client by Step instead of Run. Work is the context of everything that the
// client starts.
func (n *Node) Open(work context.Context) error {
	n.tasks.Work = work
	n.store.Serve(n.Network)
	n.auditor.Serve()
	if err := n.Network.Subscribe(work, n.gossip.listen); err != nil {
		return err
	}
	addrs := n.Network.Addrs()
	n.report.emit(event.Started{Role: "client", ID: n.run.me.String(), RunID: n.RunID, PID: os.Getpid(), Addrs: addrs})
	n.tasks.Spawn(func(ctx context.Context) func() {
		err := n.Backend.Announce(ctx, addrs)
		return func() {
			if err != nil {
				n.report.log.Warn("announce own addresses", "err", err)
			}
		}
	})
	return nil
}

// Step does what the loop of Run does between two waits: it takes over the newest state
// of the run, when there is a newer one, what peers announced, and what tasks returned,
// and starts what is missing. It reports whether the client has ended, and why when that
// is no success.
func (n *Node) Step(update *backend.Update, proceed []func()) (ended bool, err error) {
	if update != nil {
		n.observe(*update)
	}
	for len(n.gossip.heard) > 0 {
		n.hear(<-n.gossip.heard)
	}
	for _, f := range proceed {
		f()
	}
	n.reconcile()
	if n.end == nil {
		return false, nil
	}
	return true, n.end.err
}

// observe takes over a newer state.
func (n *Node) observe(u backend.Update) {
	if u.State == nil {
		return
	}
	newPeers := n.run.renew(u)
	if n.gossip.run.Load() == nil {
		n.seat.reveals = newReveals(n.Key, u.Run)
		n.auditor.Begin(u.Run)
		n.gossip.run.Store(&issuer{run: u.Run, host: identity.ID(u.State.Host), known: make(map[uint32]wire.Head)})
	}
	n.gossip.step.Store(u.State.Progress.Step)
	if !n.seat.greeted {
		n.seat.greeted = true
		n.seat.again = n.run.knownBefore()
		n.engine.signing.recall(u.Run, u.State, n.report.log)
	}
	if newPeers {
		n.Network.SetMembers(n.run.admitted())
	}
	if err := n.seat.origin.watch(u); err != nil {
		if !n.FollowUpdates {
			n.fail(err)
			return
		}
		n.report.log.Warn("following the run", "err", err)
	}
	n.openRounds()
	n.auditor.Observe()
	n.report.state(&n.run)
	n.models.DropOld(n.run.state.Model.Checkpoint.Digest)
}

// reconcile compares what should be with what is, and starts what is missing. It is
// called after every event and may be called at any time: a state that was missed, a
// message that was lost and a step that failed are all met by the next call.
func (n *Node) reconcile() {
	if n.run.state == nil || n.end != nil || n.run.lie != nil {
		return
	}
	wanted := coordinator.Checkpoint{}
	if s := n.run.state; s.RunState == coordinator.Warmup && n.run.isMember() || n.seat.rejoin.possible(&n.run, n.rounds.replica) || s.RunState == coordinator.Finished && !n.run.closedEarly() {
		wanted = s.Model.Checkpoint
	}
	n.engine.cancelLoad(wanted)
	n.keepSeat()
	n.seat.reportWaiting(&n.run, n.actions, n.report.log)
	if n.rounds.replica != nil {
		n.rounds.replica.findOtherModels(n.rounds.of[n.rounds.replica.epoch.startStep], n.run.state, n.report.log)
	}
	for step, l := range n.rounds.of {
		l.Shelve(func(slot int, raws [][]byte) { n.store.Shelf.PutBatch(step, slot, len(l.Slots), raws) })
	}
	n.keeper.SaveAgreed(n.run.state)
	n.reportUpload()
	n.eject()
	n.fetchResults()
	switch n.run.state.RunState {
	case coordinator.Warmup:
		n.warmup()
	case coordinator.RoundTrain:
		n.roundTrain()
	case coordinator.RoundWitness:
		n.roundWitness()
	case coordinator.Cooldown:
		n.cooldown()
	case coordinator.Finished:
		n.finish()
	default: // WaitingForMembers, Paused, Uninitialized
		n.closeEpoch()
	}
	n.auditor.Advance()
	n.heal()
}

// desynchronise gives up the replica: the trainer's weights are not the run's any more.
// The client joins again and gets the model from what it holds of the run's checkpoint, or
// from its peers.
func (n *Node) desynchronise(reason string) {
	at := n.run.state.Progress
	n.report.log.Warn("desynchronised: leaving the epoch to get the model from peers", "reason", reason)
	n.report.emit(event.Desynchronised{Epoch: at.Epoch, Step: at.Step, Reason: reason})
	n.engine.cancel()
	for _, l := range n.rounds.of {
		n.fetcher.StopRound(l.Tally)
	}
	n.rounds.replica, n.models.Held = nil, nil
	n.store.Forget(0) // they may not be the run's
	n.auditor.ForgetRounds()
	n.seat.again = true
	n.seat.rejoin.giveUp(n.run.epoch())
}

// fail ends the run with an error.
func (n *Node) fail(err error) {
	n.end = &ending{err}
	n.report.emit(event.Failed{Error: err.Error()})
}

// Uploaded takes note that a checkpoint which was saved here lies at a place where others
// can get it. The run is told as soon as this client has a place in it. It may be called
// from any goroutine, also when the client has ended; nobody is told then.
func (n *Node) Uploaded(f checkpoint.Facts, at coordinator.Place) {
	n.keeper.Uploads.Add(n.RunID, f, at)
}

// reportUpload tells the run where the newest uploaded checkpoint lies.
func (n *Node) reportUpload() {
	report, ok := n.keeper.Uploads.Next(n.run.state, n.run.myself(), n.report.log)
	if !ok {
		return
	}
	n.actions.submit("upload", report, report, func() {
		n.report.log.Info("told the run of the upload", "step", report.Step, "at", report.Place)
		n.report.emit(event.Uploaded{Step: report.Step, Digest: hexOf(report.Digest), Place: report.Place.String()})
	})
}

// Model returns the digest of the model that the client holds between two epochs, and
// the step after which it was taken; false while it trains or holds none.
func (n *Node) Model() (digest [32]byte, step uint32, ok bool) {
	m := n.models.Held
	if m == nil {
		return digest, 0, false
	}
	return m.Digest, m.Step, true
}

// Replica returns the hash of what was applied in this epoch and the newest applied step;
// false while the client has no replica of the run's model.
func (n *Node) Replica() (hash [32]byte, step uint32, ok bool) {
	if n.rounds.replica == nil {
		return hash, 0, false
	}
	return n.rounds.replica.hash, n.rounds.replica.step, true
}

// goroutines is the Runtime of a Node that runs by itself: the wall clock, and goroutines
// that hand what they return to the loop.
type goroutines struct {
	work  *env.Tasks
	tasks sync.WaitGroup
	posts chan func() // what tasks returned for the loop
}

func newGoroutines(work *env.Tasks) *goroutines {
	return &goroutines{work: work, posts: make(chan func())}
}

func (*goroutines) Now() time.Time { return time.Now() }

func (*goroutines) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (*goroutines) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

// Run runs a task; what it returns is dropped when the loop has ended.
func (g *goroutines) Run(task func() (proceed func())) {
	g.tasks.Go(func() {
		proceed := task()
		select {
		case g.posts <- proceed:
		case <-g.work.Work.Done():
		}
	})
}

func (*goroutines) Signal() (wait func(ctx context.Context) error, tell func()) {
	told := make(chan struct{})
	return func(ctx context.Context) error {
		select {
		case <-told:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func() { close(told) }
}

func (*goroutines) Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
