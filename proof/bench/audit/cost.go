package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/momenta"
)

// costCommand measures CPU time, which other load on the machine hardly affects.
type costCommand struct {
	Model     string `default:"proof/bench/step/model-20m.json" type:"existingfile" help:"config.json of the model."`
	Sequences int    `default:"8" help:"Sequences of a batch."`
	Length    int    `default:"512" help:"Tokens of a sequence."`
	Threads   int    `default:"2" help:"Threads of the training step. Hashing uses one thread."`
	BF16      bool   `name:"bf16" help:"Compute in bf16."`
}

func (c *costCommand) Run(ctx context.Context) error {
	trainer, err := newTrainer(ctx, c.Model, options{lr: 1e-3, threads: c.Threads, micro: 1, bf16: c.BF16, signs: true, audited: true})
	if err != nil {
		return err
	}
	defer func() { _ = trainer.Close() }()
	shapes := trainer.Shapes()
	fmt.Printf("%d parameters, %d chunks, %d × %d tokens\n", trainer.Elements(), shapes.Chunks(), c.Sequences, c.Length)
	batch := c.batch()
	var payload []byte
	step, err := used(func() (err error) {
		payload, _, err = trainer.Train(ctx, 1, batch, nil)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("training step, with its commitment: %.2f s of processors\n", step.Seconds())
	if err := commitments(shapes, step); err != nil {
		return err
	}
	return c.audit(ctx, trainer, batch, payload, step)
}

func (c *costCommand) batch() data.Batch {
	random := rand.New(rand.NewPCG(1, 1))
	batch := data.Batch{ID: assign.BatchID{End: uint64(c.Sequences)}}
	for range c.Sequences {
		sequence := make([]int32, c.Length+1)
		for i := range sequence {
			sequence[i] = random.Int32N(256)
		}
		batch.Sequences = append(batch.Sequences, sequence)
	}
	return batch
}

// commitments measures the cost of a commitment in a step: copying the momentum, hashing it, the
// tree.
func commitments(shapes audit.Shapes, step time.Duration) error {
	cut, err := momenta.New(shapes, cuts(momentumDecay))
	if err != nil {
		return err
	}
	momentum, kept := cut.Zeros(), cut.Zeros()
	const times = 5
	copying, _ := used(func() error {
		for range times {
			for i := range momentum {
				copy(kept[i], momentum[i])
			}
		}
		return nil
	})
	var leaves [][32]byte
	hashing, err := used(func() error {
		for range times {
			leaves = leaves[:0]
			for i, l := range cut.Layouts {
				_, of, err := cut.Kernel.Leaves(l, momentum[i], l.Codec(topK).NewResult())
				if err != nil {
					return err
				}
				leaves = append(leaves, of...)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	growing, _ := used(func() error {
		for range times {
			merkle.NewTree(leaves)
		}
		return nil
	})
	for _, part := range []struct {
		name string
		took time.Duration
	}{{"copy of the momentum", copying}, {"leaves", hashing}, {"tree", growing}, {"together", copying + hashing + growing}} {
		fmt.Printf("%s: %.1f ms, %.2f %% of the step\n", part.name, 1000*part.took.Seconds()/times, 100*part.took.Seconds()/times/step.Seconds())
	}
	return nil
}

// audit measures an audit of the trained step.
func (c *costCommand) audit(ctx context.Context, trainer *train.Trainer, batch data.Batch, payload []byte, step time.Duration) error {
	shapes := trainer.Shapes()
	chunks := audit.Chunks([32]byte{1}, 1, momenta.Key(0), shapes, audit.DefaultChunks, nil)
	var opening audit.Opening
	var bytes []byte
	opened, err := used(func() (err error) {
		if opening, err = trainer.Open(1, chunks); err == nil {
			bytes, err = opening.Encode(shapes)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("opening of %d chunks of a first step: %.1f ms, %d bytes (a later step: %d at most)\n", len(chunks), 1000*opened.Seconds(), len(bytes), audit.MaxOpeningSize(shapes, len(chunks)))
	if err := trainer.Apply(ctx, 1, [][]byte{payload}, true); err != nil {
		return err
	}
	var reference *audit.Reference
	recomputed, err := used(func() (err error) {
		reference, err = trainer.Recompute(ctx, audit.Recomputation{
			Step: 1, Chunks: chunks, Precision: trainer.Precisions()[0], Applied: []audit.Applied{{Step: 1, Payloads: [][]byte{payload}}},
		}, batch)
		return err
	})
	if err != nil {
		return err
	}
	header, results, err := trainer.Decode(payload)
	if err != nil {
		return err
	}
	var report audit.Report
	checked, _ := used(func() error {
		report = reference.Check(audit.Claim{Opening: opening, Header: header, Result: results})
		return nil
	})
	fmt.Printf("recomputing it a step later: %.2f s, %.0f %% of a training step; checking: %.1f ms; fault %s, error %.2g\n",
		recomputed.Seconds(), 100*recomputed.Seconds()/step.Seconds(), 1000*checked.Seconds(), report.Fault, report.Error)
	return memory(ctx)
}

// memory compares the heap of two small trainers, with and without audits.
func memory(ctx context.Context) error {
	var heap [2]int64
	var elements int64
	var chunks int
	for i := range heap {
		trainer, err := newTrainer(ctx, "proof/bench/parity/model-small.json", options{lr: 1e-3, threads: 1, micro: 1, signs: true, audited: i == 1})
		if err != nil {
			return err
		}
		small := costCommand{Sequences: 1, Length: 32}
		for step := uint32(1); step <= 4; step++ {
			payload, _, err := trainer.Train(ctx, step, small.batch(), nil)
			if err != nil {
				return err
			}
			if err := trainer.Apply(ctx, step, [][]byte{payload}, true); err != nil {
				return err
			}
		}
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		heap[i], elements, chunks = int64(stats.HeapAlloc), trainer.Elements(), trainer.Shapes().Chunks()
		if err := trainer.Close(); err != nil {
			return err
		}
	}
	more := heap[1] - heap[0]
	fmt.Printf("memory of a trainer of %d parameters in %d chunks: %d bytes more with audits, %d per chunk and 4 per parameter\n",
		elements, chunks, more, (more-4*elements)/int64(chunks))
	return nil
}

// used returns the CPU time of all threads.
func used(f func() error) (time.Duration, error) {
	before := processorTime()
	err := f()
	return processorTime() - before, err
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
