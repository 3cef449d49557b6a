package modelsync

import (
	"context"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/memnet"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
)

const (
	firstStep, lastStep = 4, 6     // first and last step of the trained epoch
	bulk                = 16 << 10 // size of a model in bytes, larger than all results
)

// rig is a run with one peer that holds everything, and a client that needs the newest model.
type rig struct {
	t       *testing.T
	before  checkpoint.Snapshot // the first model of the epoch
	after   checkpoint.Snapshot // the run's checkpoint
	wrong   checkpoint.Snapshot // a different model of the same step
	rounds  []exchange.AppliedRound
	results [][]byte

	peer   *memnet.Node
	theirs *exchange.Store

	network  *memnet.Node // the client's network
	models   *Models
	options  *Options
	request  Request
	trainer  *clienttest.Trainer // the trainer that NewTrainer returned
	reported []event.Transfer
	dropped  [][32]byte
}

// inTurn is an env.Runtime that runs tasks one after the other.
type inTurn struct{ env.Runtime }

func (inTurn) Run(task func() func()) { task()() }

func (inTurn) Now() time.Time { return time.Now() }

func (inTurn) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

func (inTurn) Each(ctx context.Context, _, count int, do func(ctx context.Context, i int) error) error {
	for i := range count {
		if err := do(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// newRig trains the epoch. The peer holds nothing yet.
func newRig(t *testing.T) *rig {
	t.Helper()
	c := &rig{t: t}
	c.before = clienttest.Bulky(clienttest.Model(), bulk)
	c.before.Step = firstStep - 1
	hub := &memnet.Hub{}
	me, other := clienttest.Key(0).ID(), clienttest.Key(1).ID()
	c.network, c.peer = hub.Attach(me), hub.Attach(other)
	c.network.SetMembers([]backend.Peer{{ID: other}})
	c.peer.SetMembers([]backend.Peer{{ID: me}})
	c.theirs = exchange.NewStore(c.peer.Drop)
	c.theirs.Serve(c.peer)
	c.theirs.Forget(1<<20, 1<<20)

	trainer := &clienttest.Trainer{Bulk: bulk}
	c.must(trainer.Load(t.Context(), c.before))
	for step := uint32(firstStep); step <= lastStep; step++ {
		c.train(trainer, step)
	}
	var err error
	if c.after, err = trainer.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.after.Step = lastStep
	c.wrong = clienttest.Bulky(clienttest.Snapshot([clienttest.Width]uint64{9}), bulk)
	c.wrong.Step = lastStep

	c.options = &Options{
		Network: c.network, Tasks: &env.Tasks{Runtime: inTurn{}, Work: t.Context()}, Folder: keep.Folder{RunID: clienttest.RunID, ID: me},
		Log: slog.New(slog.DiscardHandler), ParameterRequests: 2, Downloads: 2,
		Emit: func(body event.Body) { c.reported = append(c.reported, body.(event.Transfer)) },
		NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, _ env.Definition) (env.Trainer, error) {
			c.trainer = &clienttest.Trainer{Bulk: bulk}
			return c.trainer, c.trainer.Load(ctx, s)
		},
		Initial: func(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) { return c.before, nil },
	}
	c.models = NewModels(exchange.NewStore(func(hash [32]byte) {
		c.dropped = append(c.dropped, hash)
		c.network.Drop(hash)
	}), c.options)
	c.request = Request{
		Definition: env.Definition{Model: coordinator.Model{Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: lastStep, Digest: digestOf(c.after)}}},
		Peers:      []identity.ID{other}, Time: time.Minute,
	}
	c.request.Sources = []core.Source{core.SharedModel, core.OwnCopy, core.OwnDisk, core.OwnResults, core.OtherMembers, core.Archives}
	return c
}

// train applies a round of one result.
func (c *rig) train(trainer *clienttest.Trainer, step uint32) {
	round := exchange.AppliedRound{Step: step, EpochStart: firstStep, From: digestOf(c.before)}
	r := exchange.AppliedResult{Owner: coordinator.ClientID{byte(step)}}
	r.Batch.Start, r.Batch.End = uint64(step), uint64(step)+1
	payload := clienttest.Result(step, r.Batch, r.Owner, [32]byte{31: byte(step)})
	hash, err := c.peer.Put(payload)
	c.must(err)
	c.peer.Drop(hash)
	r.Commitment, r.Size = hash, uint32(len(payload))
	r.Vote = uint8(1 + step%assign.FullVote)
	round.Results = append(round.Results, r)
	c.rounds, c.results = append(c.rounds, round), append(c.results, payload)
	c.must(trainer.Apply(c.t.Context(), step, [][]byte{payload}, round.Votes(), false))
}

func (c *rig) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func digestOf(s checkpoint.Snapshot) [32]byte { return s.Manifest().Digest() }

// onDisk saves a model in the client's checkpoint folder. noted is the digest in the facts file, and
// may be the digest of a different model.
func (c *rig) onDisk(s checkpoint.Snapshot, noted [32]byte) {
	c.t.Helper()
	if c.options.Folder.Dir == "" {
		c.options.Folder.Dir = c.t.TempDir()
	}
	facts := checkpoint.Facts{RunID: clienttest.RunID, Step: s.Step, Digest: hex.EncodeToString(noted[:])}
	dir := c.options.Folder.Checkpoint(s.Step)
	c.must(os.MkdirAll(filepath.Dir(dir), 0o755))
	c.must(checkpoint.WriteDir(dir, s, facts.Extra()))
}

// inMemory makes the client share the first model of the epoch.
func (c *rig) inMemory() {
	c.t.Helper()
	m := &Model{Step: c.before.Step}
	c.must(m.Publish(c.t.Context(), c.options.Tasks, Idle, c.network.Lend, c.before))
	c.models.Share(m, m.Digest)
}

// resultsAt makes the peer hold these rounds, and all results.
func (c *rig) resultsAt(rounds []exchange.AppliedRound) {
	for _, round := range rounds {
		c.theirs.Remember(round)
	}
	for _, payload := range c.results {
		_, err := c.peer.Put(payload)
		c.must(err)
	}
}

// modelAt makes the peer hold the run's model.
func (c *rig) modelAt() {
	c.t.Helper()
	c.theirs.Cache.PutManifest(digestOf(c.after), c.after.Manifest().Encode())
	c.must((&Model{}).Publish(c.t.Context(), c.options.Tasks, Idle, c.peer.Lend, c.after))
}

// archived makes archives return these models, one for each location. The user's archive is first.
func (c *rig) archived(models ...checkpoint.Snapshot) {
	asked := 0
	for range models[1:] {
		c.request.Places = append(c.request.Places, coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"})
	}
	c.options.Archive = func(context.Context, coordinator.Checkpoint, coordinator.Location) (checkpoint.Snapshot, error) {
		asked++
		return models[asked-1], nil
	}
}

// obtain makes one attempt and ends it.
func (c *rig) obtain() (*Attempt, error) {
	a := c.models.Begin(c.request)
	err := a.Run(c.t.Context())
	c.models.End(a, err, false, c.request.Definition.Checkpoint.Digest)
	return a, err
}
