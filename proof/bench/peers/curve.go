package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// microBatch is the number of sequences that a member's model processes at once.
const microBatch = 8

// replica is a member of a Psyche run, with either optimizer.
type replica interface {
	Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error)
	Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	ApplyLag() uint32
	Close() error
}

// ownCurve trains the whole run of a Psyche system in this process, with a replica for each member
// and the exchanged results. It measures the held-out loss during the run.
func (b *bench) ownCurve(ctx context.Context, s system) (m measurement, err error) {
	run, err := b.state(s, s.Exchanges)
	if err != nil {
		return m, err
	}
	replicas, err := b.replicas(ctx, run)
	defer func() {
		for _, one := range replicas {
			err = errors.Join(err, one.Close())
		}
	}()
	if err != nil {
		return m, err
	}
	batch := uint64(run.Config.GlobalBatchSizeStart)
	m.Sequences = int(batch)
	before, begun := ownCPU(), time.Now()
	var waiting []results
	for step := uint32(0); step <= uint32(s.Exchanges); step++ {
		now := point{Step: int(step)}
		if step > 0 {
			first := uint64(step-1) * batch
			var trained results
			if trained, now.Loss, now.Bytes, err = trainRound(ctx, replicas, b.text, step, assign.BatchID{Start: first, End: first + batch}); err != nil {
				return m, fmt.Errorf("round %d: %w", step, err)
			}
			waiting = append(waiting, trained)
			due := max(0, len(waiting)+1-int(replicas[0].ApplyLag()))
			if int(step) == s.Exchanges {
				due = len(waiting)
			}
			if err := apply(ctx, replicas, waiting[:due]); err != nil {
				return m, err
			}
			waiting = waiting[due:]
		}
		if int(step)%s.Measure == 0 || int(step) == s.Exchanges {
			if now.HeldOut, err = replicas[0].Evaluate(ctx, b.text.heldOut); err != nil {
				return m, err
			}
		}
		now.Seconds = time.Since(begun).Seconds()
		m.Points = append(m.Points, now)
	}
	m.CPU = []float64{ownCPU() - before}
	for _, one := range replicas {
		snapshot, err := one.Snapshot(ctx)
		if err != nil {
			return m, err
		}
		snapshot.Sort()
		digest := snapshot.Manifest().Digest()
		m.Digests = append(m.Digests, fmt.Sprintf("%x", digest[:8]))
	}
	return m, nil
}

// replicas creates the members of a run with its first weights.
func (b *bench) replicas(ctx context.Context, run config.Run) (all []replica, err error) {
	llm := run.Model
	for i := range members {
		options := train.Options{
			Optimizer: llm.Optimizer, LRSchedule: llm.LRSchedule, MicroBatch: microBatch, Threads: 1, RunID: runID,
			TrainerID: [32]byte{byte(i) + 1}, Audited: run.Config.VerificationPercent > 0,
		}
		if options.Model, err = checkpoint.ReadDir(llm.Checkpoint.Local.Path); err != nil {
			return all, err
		}
		var one replica
		if llm.Optimizer.LocalSteps != nil {
			one, err = train.NewLocal(ctx, options)
		} else {
			one, err = train.New(ctx, options)
		}
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// results are the results of a round, which are applied apply_lag rounds later.
type results struct {
	step     uint32
	payloads [][]byte
}

// trainRound makes each member train its share. It returns the results, their mean loss, and their
// mean size.
func trainRound(ctx context.Context, replicas []replica, t *text, step uint32, id assign.BatchID) (trained results, loss float64, bytes int, err error) {
	trained.step = step
	count := uint64(len(replicas))
	for i, one := range replicas {
		share := assign.BatchID{Start: id.Start + id.Len()*uint64(i)/count, End: id.Start + id.Len()*uint64(i+1)/count}
		sequences, err := t.training.Sequences(ctx, share)
		if err != nil {
			return trained, 0, 0, err
		}
		payload, mean, err := one.Train(ctx, step, data.Batch{ID: share, Sequences: sequences}, nil)
		if err != nil {
			return trained, 0, 0, fmt.Errorf("member %d: %w", i, err)
		}
		trained.payloads = append(trained.payloads, payload)
		loss, bytes = loss+mean/float64(count), bytes+len(payload)/int(count)
	}
	return trained, loss, bytes, nil
}

// apply makes all members apply the results of some rounds.
func apply(ctx context.Context, replicas []replica, due []results) error {
	for _, round := range due {
		for i, one := range replicas {
			if err := one.Apply(ctx, round.step, round.payloads, nil, true); err != nil {
				return fmt.Errorf("round %d, member %d: %w", round.step, i, err)
			}
		}
	}
	return nil
}
