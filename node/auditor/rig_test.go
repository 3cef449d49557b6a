package auditor

import (
	"context"
	"log/slog"
	"math/bits"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// newest is the running round in these tests. The rounds before it are applied.
const newest = 6

// rig is an Auditor without a client. The test simulates the run, the trainers, the peers and the
// clock.
type rig struct {
	*Auditor
	clock   *timeline
	state   *coordinator.State
	engine  *engine
	tallies map[uint32]*tally.Tally
	spare   bool
	silent  bool // the accused sends no openings
	away    bool // the results of the accused do not arrive here any more

	other     coordinator.ClientID
	shown     map[resultID][][]byte // parts that members serve
	withheld  uint64                // bit mask of the parts that no member serves
	asked     int                   // number of requests for parts
	submitted map[string]coordinator.Action
	reported  []event.Audit
}

// newRig returns an auditor that has seen the rounds before newest. It and one other member have a
// result in each. The function distort changes the gradient of the other member.
func newRig(t *testing.T, distort func(gradient []float32) []float32) *rig {
	t.Helper()
	r := &rig{
		clock: &timeline{now: time.Unix(1000, 0)}, tallies: make(map[uint32]*tally.Tally), spare: true,
		other: coordinator.ClientID(clienttest.Key(2).ID()), shown: make(map[resultID][][]byte), submitted: make(map[string]coordinator.Action),
	}
	me := coordinator.ClientID(clienttest.Key(1).ID())
	r.engine = &engine{clock: r.clock, trainer: &trainer{Part: toy.Part{Optimizer: toy.Optimizer{Trainer: me}}}}
	r.state = &coordinator.State{RunState: coordinator.RoundTrain, Config: coordinator.Config{VerificationPercent: 34}}
	r.state.Progress.Step, r.state.Epoch.StartStep = newest, 1
	for _, id := range []coordinator.ClientID{me, r.other} {
		r.state.Epoch.Clients = append(r.state.Epoch.Clients, coordinator.Client{ID: id, State: coordinator.Healthy})
	}
	r.Auditor = New(Options{
		Key: clienttest.Key(1), Memory: 1 << 20, Tasks: &env.Tasks{Runtime: r.clock, Work: t.Context()}, Network: network{rig: r},
		Data: clienttest.Data{}, Client: client{r}, Engine: r.engine, Log: slog.New(slog.DiscardHandler),
		Needed: func() bool { return false },
		Submit: func(kind string, _ any, a coordinator.Action, accepted func()) {
			r.submitted[kind] = a
			accepted()
		},
		Emit: func(body event.Body) {
			if audit, ok := body.(event.Audit); ok {
				r.reported = append(r.reported, audit)
			}
		},
	})
	r.Begin([32]byte{7})
	r.Observe()
	cheat := &trainer{Part: toy.Part{Optimizer: toy.Optimizer{Trainer: r.other}}, distort: distort}
	for step := uint32(1); step < newest; step++ {
		r.seeds[step] = [32]byte{9, byte(step)}
		round := appliedRound{Step: step, EpochStart: 1, At: r.clock.now, Data: coordinator.Round{BatchSize: 1 << 30}}
		for i, by := range []*trainer{r.engine.trainer, cheat} {
			round.Results = append(round.Results, r.make(t, by, step, uint64(2*step)+uint64(i)))
		}
		r.past.Add(round, newest, leastKept)
	}
	return r
}

// make makes a trainer's result of a step, and opens it.
func (r *rig) make(t *testing.T, by *trainer, step uint32, batch uint64) attestedResult {
	t.Helper()
	tokens, _ := r.Data.Batch(t.Context(), assign.BatchID{Start: batch, End: batch + 1})
	gradient := toy.Gradient(weights(step-1), tokens.Sequences)
	if by.distort != nil {
		gradient = by.distort(gradient)
	}
	payload, err := by.Optimizer.Step(step, tokens.ID, gradient, tokens.Hash())
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := toy.Decode(payload)
	key := resultID{Trainer: by.Optimizer.Trainer, Step: step}
	opening, err := by.Open(step, audit.Chunks(r.seeds[step], step, key.Trainer, by.Shapes(), audit.DefaultChunks, nil))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := splitOpening(opening, [64]byte{}, by.Shapes())
	if err != nil {
		t.Fatal(err)
	}
	r.shown[key] = parts
	if key.Trainer == r.me {
		_ = r.openings.keep(key, parts)
	}
	commitment := [32]byte{byte(batch), byte(step)}
	if err := r.payloads.put(commitment, payload); err != nil {
		t.Fatal(err)
	}
	return attestedResult{Owner: key.Trainer, Batch: tokens.ID, Commitment: commitment, Header: header, Counted: true, Vote: assign.FullVote, Since: 1}
}

// run advances the time. The client calls the auditor ten times a second.
func (r *rig) run(d time.Duration) {
	for end := r.clock.now.Add(d); r.clock.now.Before(end); {
		r.Advance()
		r.clock.finish()
		r.clock.now = r.clock.now.Add(100 * time.Millisecond)
	}
}

// round begins a later round. The other member's result of the previous round has arrived.
func (r *rig) round() {
	s := r.state.Clone()
	r.tallies[s.Progress.Step] = &tally.Tally{Slots: []tally.Slot{{Owner: r.other, Candidates: []*tally.Candidate{{State: tally.Held}}}}}
	if r.away {
		r.tallies[s.Progress.Step] = &tally.Tally{Slots: []tally.Slot{{Owner: r.other}}}
	}
	s.Progress.Step++
	r.state = &s
	r.Observe()
}

// client is the rig in the role of the auditor's client.
type client struct{ rig *rig }

func (c client) State() *coordinator.State { return c.rig.state }
func (c client) Members() []identity.ID    { return []identity.ID{identity.ID(c.rig.other)} }
func (c client) Round(step uint32) (*tally.Tally, tally.Commitment) {
	return c.rig.tallies[step], tally.Commitment{}
}
func (c client) Model() (uint32, Model)        { return newest - 1, Replica }
func (c client) Spare() (now, next bool)       { return c.rig.spare, false }
func (c client) CompletionTime() time.Duration { return time.Minute }

// engine is a trainer that is idle unless a recomputation was started.
type engine struct {
	clock   *timeline
	trainer *trainer
	busy    bool
	urgent  int // number of recomputations
	resets  int
	signed  uint32

	interrupts int // number of the next recomputations that other work interrupts
}

func (e *engine) Auditor() env.Auditor { return e.trainer }

func (e *engine) Signed() uint32 { return e.signed }
func (e *engine) Lag() uint32    { return 1 }
func (e *engine) Idle() bool     { return !e.busy }
func (e *engine) Yield()         {}

func (e *engine) ResetOptimizer(done func()) {
	e.resets++
	done()
}

func (e *engine) Recompute(_ uint32, urgent bool, task func(ctx context.Context) func()) {
	e.busy = true
	if urgent {
		e.urgent++
	}
	e.clock.Run(func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if e.interrupts > 0 {
			e.interrupts--
			cancel()
		}
		proceed := task(ctx)
		return func() {
			e.busy = false
			proceed()
		}
	})
}

// trainer is a trainer with audited results. Its weights depend only on the step.
type trainer struct {
	toy.Part
	distort        func(gradient []float32) []float32
	broken         bool // its gradients differ from all others
	fails          bool // its recomputations fail
	recomputations int
	recomputed     []uint32 // their steps
	abandoned      []uint32 // steps whose progress was dropped
	computing      func()   // called in each recomputation; may be nil
}

// weights returns the weights after a step.
func weights(step uint32) [32]byte { return [32]byte{byte(step), 5} }

func (*trainer) Precisions() []audit.Precision { return []audit.Precision{audit.F32} }

func (t *trainer) Abandon(step uint32, _ [32]byte) { t.abandoned = append(t.abandoned, step) }

func (t *trainer) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	t.recomputations++
	t.recomputed = append(t.recomputed, x.Step)
	if t.computing != nil {
		t.computing()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.fails {
		return nil, clienttest.ErrFake
	}
	of := weights(x.Weights)
	if t.broken {
		of[9] = 1
	}
	return toy.Reference(x.Step, x.Trainer, x.Chunks, toy.Gradient(of, batch.Sequences))
}

// network serves the auditor's requests for openings.
type network struct {
	env.Network
	rig *rig
}

func (n network) Request(_ context.Context, _ identity.ID, _ string, request []byte, _ int) ([]byte, error) {
	asked, err := decodeRequest(request)
	n.rig.asked++
	parts := n.rig.shown[asked.resultID]
	wanted := asked.wanted &^ n.rig.withheld
	if err != nil || n.rig.silent || wanted == 0 || bits.TrailingZeros64(wanted) >= len(parts) {
		return nil, clienttest.ErrFake
	}
	return encodeAnswer([][]byte{parts[bits.TrailingZeros64(wanted)]}), nil
}

// timeline is an env.Runtime whose time and tasks advance only when the test calls it.
type timeline struct {
	env.Runtime
	now   time.Time
	tasks []func() func()
}

func (l *timeline) Now() time.Time { return l.now }

func (l *timeline) WithTimeout(parent context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (l *timeline) Run(task func() (proceed func())) { l.tasks = append(l.tasks, task) }

// finish runs the tasks that have been started.
func (l *timeline) finish() {
	tasks := l.tasks
	l.tasks = nil
	for _, task := range tasks {
		task()()
	}
}
