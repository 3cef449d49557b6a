package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// alone trains with AdamW.
type alone struct {
	trainer *train.AdamW
	text    *local.Folder
}

func newAdamW(ctx context.Context, c *runCommand, o train.Options, text *local.Folder) (learner, error) {
	o.Optimizer.AdamW = &config.AdamW{Betas: [2]float64{c.Beta1, c.Beta2}, Eps: 1e-8, WeightDecay: c.Decay, ClipGradNorm: c.Clip}
	trainer, err := train.NewAdamW(ctx, o)
	if err != nil {
		return nil, err
	}
	return &alone{trainer, text}, nil
}

func (a *alone) step(ctx context.Context, step uint32, id assign.BatchID) (stepped, error) {
	sequences, err := a.text.Sequences(ctx, id)
	if err != nil {
		return stepped{}, err
	}
	loss, err := a.trainer.Step(ctx, step, data.Batch{ID: id, Sequences: sequences})
	return stepped{loss: loss}, err
}

func (a *alone) evaluate(ctx context.Context, sequences [][]int32) (float64, error) {
	return a.trainer.Evaluate(ctx, sequences)
}

func (a *alone) finish(context.Context) error { return nil }

func (a *alone) close() error { return a.trainer.Close() }

// clients are the members of a run, each with a replica and a momentum.
type clients struct {
	trainers []trainer
	text     *local.Folder
	lag      uint32
	levels   []uint8 // of the clients' speeds; nil: equal shares
	waiting  []sent  // trained but not applied, oldest first
}

// trainer is a client with DisTrO or local steps.
type trainer interface {
	Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error)
	Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error
	Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	Close() error
}

// sent is the clients' results of a step.
type sent struct {
	step     uint32
	payloads [][]byte
	votes    []uint8
}

func newClients(ctx context.Context, c *runCommand, o train.Options, text *local.Folder) (learner, error) {
	if c.Optimizer == "local" {
		o.Optimizer.LocalSteps = c.localSteps()
		o.Audited = c.Audited
	} else {
		o.Optimizer.Distro = &config.Distro{
			ClipGradNorm: c.Clip, WeightDecay: c.Decay, CompressionDecay: c.Momentum,
			CompressionTopK: c.TopK, CompressionChunk: c.Chunk, Quantize1Bit: c.OneBit,
			ApplyLag: c.ApplyLag, Lookahead: c.Lookahead,
		}
	}
	levels, err := c.levels()
	if err != nil {
		return nil, err
	}
	all := &clients{text: text, lag: uint32(c.ApplyLag), levels: levels}
	for i := range c.Clients {
		o.TrainerID = key(i)
		one, err := newClient(ctx, o)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all.trainers = append(all.trainers, one)
	}
	return all, nil
}

func (c *runCommand) localSteps() *config.LocalSteps {
	l := &config.LocalSteps{
		InnerSteps: c.InnerSteps, Betas: [2]float64{c.Beta1, c.Beta2}, Eps: 1e-8, WeightDecay: c.Decay, ClipGradNorm: c.Clip,
		OuterLR: c.OuterLR, OuterMomentum: c.OuterBeta, CompressionTopK: c.TopK, CompressionChunk: c.Chunk, ValueBits: c.ValueBits, ErrorDecay: c.ErrorDecay,
		ApplyLag: c.ApplyLag,
	}
	if c.Muon {
		l.InnerOptimizer = config.Muon
	}
	return l
}

func newClient(ctx context.Context, o train.Options) (trainer, error) {
	if o.Optimizer.LocalSteps != nil {
		return train.NewLocal(ctx, o)
	}
	return train.New(ctx, o)
}

// key returns a substitute for the public key of a client.
func key(client uint64) [32]byte { return [32]byte{byte(client) + 1} }

func (c *clients) step(ctx context.Context, step uint32, id assign.BatchID) (s stepped, err error) {
	now := sent{step: step}
	for i, share := range c.shares(id) {
		sequences, err := c.text.Sequences(ctx, share.Batch)
		if err != nil {
			return s, err
		}
		payload, mean, err := c.trainers[i].Train(ctx, step, data.Batch{ID: share.Batch, Sequences: sequences}, nil)
		if err != nil {
			return s, fmt.Errorf("client %d: %w", i, err)
		}
		if err := c.trainers[0].Verify(payload, step, share.Batch, key(uint64(i))); err != nil {
			return s, fmt.Errorf("client %d: %w", i, err)
		}
		now.payloads, now.votes = append(now.payloads, payload), append(now.votes, share.Vote)
		s.loss += mean * float64(share.Batch.Len()) / float64(id.Len())
		s.bytes += len(payload)
	}
	c.waiting = append(c.waiting, now)
	if uint32(len(c.waiting)) == c.lag {
		err = c.applyOldest(ctx)
	}
	s.bytes /= len(c.trainers)
	return s, err
}

// shares returns the batch of each client, with its vote.
func (c *clients) shares(id assign.BatchID) (shares []assign.Assignment) {
	count := uint64(len(c.trainers))
	for i := range count {
		batch := assign.BatchID{Start: id.Start + id.Len()*i/count, End: id.Start + id.Len()*(i+1)/count}
		shares = append(shares, assign.Assignment{Member: int(i), Batch: batch, Vote: assign.FullVote})
	}
	if c.levels == nil {
		return shares
	}
	at := id.Start
	for _, a := range assign.Batches(0, len(c.trainers), 0, 0, uint32(id.Len()), c.levels) {
		shares[a.Member].Batch.End, shares[a.Member].Vote = a.Batch.Len(), a.Vote
	}
	for i := range shares {
		shares[i].Batch.Start, shares[i].Batch.End = at, at+shares[i].Batch.End
		at = shares[i].Batch.End
	}
	return shares
}

// levels returns the levels of the clients' speeds; nil: none.
func (c *runCommand) levels() (levels []uint8, err error) {
	if c.Speeds == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(c.Speeds, ",") {
		speed, err := strconv.ParseFloat(text, 64)
		if err != nil || speed < 0.01 || speed > 100 {
			return nil, fmt.Errorf("speeds %q: %q is not a number from 0.01 to 100", c.Speeds, text)
		}
		levels = append(levels, uint8(80+8*math.Log2(speed)))
	}
	if uint64(len(levels)) != c.Clients || c.OneReplica || c.Optimizer == "adamw" {
		return nil, fmt.Errorf("speeds %q, clients %d, optimizer %s: want one speed per client with its own replica", c.Speeds, c.Clients, c.Optimizer)
	}
	return levels, nil
}

func (c *clients) applyOldest(ctx context.Context) error {
	oldest := c.waiting[0]
	c.waiting = c.waiting[1:]
	for i, trainer := range c.trainers {
		if err := trainer.Apply(ctx, oldest.step, oldest.payloads, oldest.votes, true); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	return nil
}

func (c *clients) evaluate(ctx context.Context, sequences [][]int32) (float64, error) {
	return c.trainers[0].Evaluate(ctx, sequences)
}

// finish applies outstanding results and compares the replicas.
func (c *clients) finish(ctx context.Context) error {
	for len(c.waiting) > 0 {
		if err := c.applyOldest(ctx); err != nil {
			return err
		}
	}
	var first checkpoint.Snapshot
	for i, trainer := range c.trainers {
		snapshot, err := trainer.Snapshot(ctx)
		if err != nil {
			return err
		}
		snapshot.Sort()
		if i == 0 {
			first = snapshot
		} else if snapshot.Manifest().Digest() != first.Manifest().Digest() {
			return fmt.Errorf("client %d: the model differs from the model of client 0", i)
		}
	}
	return nil
}

func (c *clients) close() error {
	var errs []error
	for _, trainer := range c.trainers {
		errs = append(errs, trainer.Close())
	}
	return errors.Join(errs...)
}
