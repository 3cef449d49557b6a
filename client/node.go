package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// ErrDesynchronised says that the client ended with another model than the run.
var ErrDesynchronised = errors.New("the model differs from the run's")

// Node is one client of a run. Everything below belongs to the goroutine of Run; other
// goroutines are started by spawn and start and report back through posts.
type Node struct {
	Options
	id    identity.ID
	log   *slog.Logger
	work  context.Context // of everything Run starts; ends with Run
	tasks sync.WaitGroup
	posts chan func()    // continuations of tasks
	heard chan utterance // verified announcements of peers
	shelf *shelf         // what peers may ask for at any time
	past  history        // results for members that were away

	state *coordinator.State // newest; never modified
	peers []backend.Peer
	fit   map[coordinator.ClientID]bool // the healthy members
	seat  seat                          // see membership.go

	trainer Trainer
	built   []byte              // the definition that the trainer was built from
	model   *heldModel          // what the trainer holds; nil while it differs from any manifest
	shares  []*heldModel        // whose blobs peers can fetch, newest last
	partial partialModel        // a model on its way here
	whole   [32]byte            // digest of a model that catching up by results did not lead to
	replica *replica            // place in the epoch; nil without one
	op      *operation          // what the trainer is doing
	rounds  map[uint32]*ledger  // by step
	wants   []want              // memory of wanted
	opened  []uint32            // steps of rounds, ascending; replaced, never modified
	early   []utterance         // announcements for rounds that have not begun here
	unsaved *heldModel          // the newest epoch's, until it is clear that it is the run's
	saves   int                 // checkpoints being written
	saveErr error               // of the newest one
	fetches int                 // results on their way
	overdue time.Time           // when the first of them gives way to others
	pace    float64             // of the fetches that succeeded, in bytes per second; 0: none yet
	stalls  map[identity.ID]int // how often results of a member ran out of time, in this epoch
	turn    int                 // rotates which peers are asked
	healed  time.Time           // when lost gossip was last looked after
	errands map[string]*errand

	accusedIn     *coordinator.State // newest in which members were looked at
	applyFailures int                // in a row
	obtainAt      time.Time          // not before: the next attempt to load the model

	otherModels epochKey // in which members were found to have begun from another model

	storeLoses bool // the blob store has lost what it was given to keep: see unread

	uploads uploadReports // of this client
	onDisk  diskModel     // see heldOnDisk

	seen  event.State // newest that was written
	total event.Wire
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

	coldSteps uint32   // of the epoch's cold start
	from      [32]byte // digest of the model that the epoch began with
}

// epochKey names an epoch by what it starts from. An aborted Warmup that is repeated
// from the same model is the same.
type epochKey struct {
	startStep  uint32
	checkpoint coordinator.Checkpoint
}

// operation is the one thing that the trainer is doing.
type operation struct {
	name   string
	step   uint32                 // of a training
	from   coordinator.Checkpoint // of a load
	cancel context.CancelFunc
}

// New checks the options and returns a client that has not begun anything.
func New(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		Options: o,
		id:      o.Key.ID(),
		log:     o.Logger.With("client", o.Key.ID().Short()),
		posts:   make(chan func()),
		heard:   make(chan utterance, 2*coordinator.MaxClients),
		shelf:   newShelf(),
		rounds:  make(map[uint32]*ledger),
		errands: make(map[string]*errand),
		stalls:  make(map[identity.ID]int),
	}
	if n.Runtime == nil {
		n.Runtime = goroutines{n}
	}
	if n.Announcements == nil {
		n.Announcements = signed{&n.Options}
	}
	if n.Draws == nil {
		n.Draws = drawn{}
	}
	return n, nil
}

// Run takes part in the run until it is finished (nil), ctx is done (its cause, after
// withdrawing), or the client cannot go on. All goroutines have ended when it returns.
// A Node runs once.
func (n *Node) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(ctx)
	defer n.tasks.Wait()
	defer cancel()
	n.work = work
	if err := n.connect(); err != nil {
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
		case u := <-n.heard:
			n.hear(u)
			n.hearWaiting()
		case proceed := <-n.posts:
			proceed()
		case <-ticks.C:
		}
		n.reconcile()
	}
	return n.err
}

// hearWaiting enters the announcements that have come meanwhile: what is done about them
// costs the same for one and for many.
func (n *Node) hearWaiting() {
	for range min(len(n.heard), maxHeardAtOnce) {
		n.hear(<-n.heard)
	}
}

// connect opens the ears of the client.
func (n *Node) connect() error {
	n.Network.Handle(roundProtocol, roundRequestSize, n.shelf.answerRound)
	n.Network.Handle(modelProtocol, modelRequestSize, n.shelf.answerModel)
	n.Network.Handle(resultsProtocol, resultsRequestSize, n.past.answer)
	if err := n.Network.Subscribe(n.work, n.listen); err != nil {
		return err
	}
	addrs := n.Network.Addrs()
	n.emit(event.Started{Role: "client", ID: n.id.String(), RunID: n.RunID, PID: os.Getpid(), Addrs: addrs})
	n.spawn(func(ctx context.Context) func() {
		err := n.Backend.Announce(ctx, addrs)
		return func() {
			if err != nil {
				n.log.Warn("announce own addresses", "err", err)
			}
		}
	})
	return nil
}

// backendGone explains the end of updates.
func (n *Node) backendGone() error {
	err := n.Backend.Err()
	if err == nil {
		err = backend.ErrClosed
	}
	err = fmt.Errorf("run client: %w", err)
	n.emit(event.Failed{Error: err.Error()})
	return err
}

// reconcile compares what should be with what is, and starts what is missing. It is
// called after every event and may be called at any time: a state that was missed, a
// message that was lost and a step that failed are all met by the next call.
func (n *Node) reconcile() {
	if n.state == nil || n.ended {
		return
	}
	n.cancelLoad()
	n.keepSeat()
	n.reportWaiting()
	n.findOtherModels()
	n.shelve()
	n.saveAgreed()
	n.reportUpload()
	n.fetchResults()
	switch n.state.RunState {
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

// spawn runs a task beside the loop and the function it returns in the loop.
func (n *Node) spawn(task func(ctx context.Context) func()) {
	n.Runtime.Run(func() func() { return task(n.work) })
}

// start is spawn for what uses the trainer, of which there is one at a time: the caller
// has checked that n.op is nil.
func (n *Node) start(name string, step uint32, task func(ctx context.Context) func()) {
	ctx, cancel := n.Runtime.WithCancel(n.work)
	n.op = &operation{name: name, step: step, cancel: cancel}
	n.Runtime.Run(func() func() {
		defer cancel()
		proceed := task(ctx)
		return func() {
			n.op = nil
			proceed()
		}
	})
}

// post hands a continuation to the loop, or drops it when the loop has ended.
func (n *Node) post(proceed func()) {
	select {
	case n.posts <- proceed:
	case <-n.work.Done():
	}
}

// cancelTraining stops the training of any step but the given one; 0 stops all.
func (n *Node) cancelTraining(except uint32) {
	if n.op != nil && n.op.name == opTrain && (except == 0 || n.op.step != except) {
		n.op.cancel()
	}
}

// fail ends the run with an error.
func (n *Node) fail(err error) {
	n.ended, n.err = true, err
	n.emit(event.Failed{Error: err.Error()})
}

// emit writes an event; a log that cannot be written does not stop the training.
func (n *Node) emit(body event.Body) {
	if err := n.Events.Append(body); err != nil {
		n.log.Error("write event", "err", err)
	}
}
