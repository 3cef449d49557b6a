package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/exchange"
	"github.com/psyche-go/psyche/client/fetch"
	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/client/keep"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// ErrDesynchronised says that the client ended with another model than the run.
var ErrDesynchronised = errors.New("the model differs from the run's")

// Node is one client of a run. Everything in it belongs to the goroutine of Run; what takes
// time runs beside it and hands back what is to be done.
type Node struct {
	Options
	log   *slog.Logger
	tasks *env.Tasks

	run     view           // the newest state of the run
	seat    seat           // the own place in it
	errands *errands       // actions on their way to the coordinator
	engine  engine         // the trainer, and what it is doing
	replica *replica       // place in the epoch; nil without one
	rounds  ledgers        // the books of the newest rounds
	fetcher *fetch.Fetcher // results of peers
	models  *handover.Models
	keeper  *keep.Keeper
	ears    *ears           // what peers say
	shelf   *exchange.Shelf // what they may ask for
	past    *exchange.History
	blobs   *exchange.Blobs
	report  *reporter
	turns   fetch.Rotation // of who is asked first
	uploads keep.Uploads

	healed    time.Time          // when lost gossip was last looked after
	obtainAt  time.Time          // not before: the next attempt to load the model
	accusedIn *coordinator.State // newest in which members were looked at

	ended bool
	err   error
}

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
	n := &Node{
		Options: o,
		log:     log,
		tasks:   &env.Tasks{Runtime: o.Runtime},
		run:     view{me: o.Key.ID()},
		rounds:  ledgers{of: make(map[uint32]*ledger)},
		shelf:   exchange.NewShelf(),
		past:    &exchange.History{},
		report:  &reporter{events: o.Events, log: log, network: o.Network, backend: o.Backend},
	}
	if n.tasks.Runtime == nil {
		n.tasks.Runtime = newGoroutines(n.tasks)
	}
	n.engine.tasks = n.tasks
	n.errands = &errands{tasks: n.tasks, backend: o.Backend, log: log, id: n.run.me, kinds: make(map[string]*errand)}
	n.ears = &ears{
		tasks: n.tasks, network: o.Network, announcements: o.Announcements, shelf: n.shelf,
		heard: make(chan utterance, heardRoom), misbehaved: o.Misbehaved, log: log,
	}
	n.models = handover.NewModels(n.shelf)
	n.blobs = exchange.NewBlobs(o.Network.Drop, n.models.EachBlob, n.rounds.eachBlob, n.past.EachBlob)
	n.models.SetBlobs(n.blobs)
	n.fetcher = fetch.New(fetch.Options{
		ID: n.run.me, Tasks: n.tasks, Blobs: o.Network, Owner: fetched{n}, Log: log, Limit: o.Downloads, Rotation: &n.turns,
	})
	n.keeper = keep.NewKeeper(keep.Options{
		Folder: o.folder(), Keep: o.KeepCheckpoints, Saved: o.Saved, Tasks: n.tasks, Emit: n.report.emit, Log: log,
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
	defer own.tasks.Wait()
	defer cancel()
	if err := n.Open(work); err != nil {
		return fmt.Errorf("run client: %w", err)
	}
	ticks := time.NewTicker(heartbeat)
	defer ticks.Stop()
	for !n.ended {
		select {
		case <-ctx.Done():
			n.withdraw(ctx)
			n.reportLoss()
			return context.Cause(ctx)
		case update, open := <-n.Backend.Updates():
			if !open {
				return n.backendGone()
			}
			n.observe(update)
		case u := <-n.ears.heard:
			n.hear(u)
			n.hearWaiting()
		case proceed := <-own.posts:
			proceed()
		case <-ticks.C:
		}
		n.reconcile()
	}
	return n.err
}

// Open begins the client's part in the run for a caller that has a Runtime of its own and
// drives the client by Step instead of Run. Work is the context of everything that the
// client starts.
func (n *Node) Open(work context.Context) error {
	n.tasks.Work = work
	exchange.Serve(n.Network, n.shelf, n.past)
	if err := n.Network.Subscribe(work, n.ears.listen); err != nil {
		return err
	}
	addrs := n.Network.Addrs()
	n.report.emit(event.Started{Role: "client", ID: n.run.me.String(), RunID: n.RunID, PID: os.Getpid(), Addrs: addrs})
	n.tasks.Spawn(func(ctx context.Context) func() {
		err := n.Backend.Announce(ctx, addrs)
		return func() {
			if err != nil {
				n.log.Warn("announce own addresses", "err", err)
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
	for len(n.ears.heard) > 0 {
		n.hear(<-n.ears.heard)
	}
	for _, f := range proceed {
		f()
	}
	n.reconcile()
	return n.ended, n.err
}

// backendGone explains the end of updates.
func (n *Node) backendGone() error {
	err := n.Backend.Err()
	if err == nil {
		err = backend.ErrClosed
	}
	err = fmt.Errorf("run client: %w", err)
	n.report.emit(event.Failed{Error: err.Error()})
	return err
}

// observe takes over a newer state.
func (n *Node) observe(u backend.Update) {
	if u.State == nil {
		return
	}
	newPeers := n.run.renew(u)
	if !n.seat.greeted {
		n.seat.greeted = true
		n.seat.again = n.run.knownBefore()
	}
	if newPeers {
		n.Network.SetMembers(n.run.admitted())
	}
	n.openRounds()
	n.report.state(&n.run)
	n.models.DropOld(n.run.state.Model.Checkpoint.Digest)
}

// reconcile compares what should be with what is, and starts what is missing. It is
// called after every event and may be called at any time: a state that was missed, a
// message that was lost and a step that failed are all met by the next call.
func (n *Node) reconcile() {
	if n.run.state == nil || n.ended {
		return
	}
	n.cancelLoad()
	n.keepSeat()
	n.reportWaiting()
	n.findOtherModels()
	for step, l := range n.rounds.of {
		l.Shelve(func(slot int, raws [][]byte) { n.shelf.PutBatch(step, slot, len(l.Slots), raws) })
	}
	n.keeper.SaveAgreed(n.run.state)
	n.reportUpload()
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
	n.heal()
}

// desynchronise gives up the replica: the trainer's weights are not the run's any more.
// The client joins again and gets the model from what it holds of the run's checkpoint, or
// from its peers.
func (n *Node) desynchronise(reason string) {
	at := n.run.state.Progress
	n.log.Warn("desynchronised: leaving the epoch to get the model from peers", "reason", reason)
	n.report.emit(event.Desynchronised{Epoch: at.Epoch, Step: at.Step, Reason: reason})
	n.engine.cancel()
	for _, l := range n.rounds.of {
		n.fetcher.StopRound(l.Book)
	}
	n.replica, n.models.Held = nil, nil
	n.forgetResults(0) // they may not be the run's
	n.seat.again = true
}

// forgetResults drops what is kept for members that are away, and keeps at most limit
// bytes from now on.
func (n *Node) forgetResults(limit uint64) { n.blobs.Drop(n.past.Reset(limit)...) }

// fail ends the run with an error.
func (n *Node) fail(err error) {
	n.ended, n.err = true, err
	n.report.emit(event.Failed{Error: err.Error()})
}

// Uploaded takes note that a checkpoint which was saved here lies at a place where others
// can get it. The run is told as soon as this client has a place in it. It may be called
// from any goroutine, also when the client has ended; nobody is told then.
func (n *Node) Uploaded(f checkpoint.Facts, at coordinator.Place) { n.uploads.Add(n.RunID, f, at) }

// reportUpload tells the run where the newest uploaded checkpoint lies.
func (n *Node) reportUpload() {
	report, ok := n.uploads.Next(n.run.state, n.run.myself(), n.log)
	if !ok {
		return
	}
	n.errands.submit("upload", report, report, func() {
		n.log.Info("told the run of the upload", "step", report.Step, "at", report.Place)
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
	if n.replica == nil {
		return hash, 0, false
	}
	return n.replica.hash, n.replica.step, true
}
