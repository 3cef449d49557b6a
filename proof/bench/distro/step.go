package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// step trains rounds, and prints the durations of their parts. It compares the size of the results with the published format and the bound.
func (o options) step(ctx context.Context, m *tensors) (err error) {
	if err := torch.Load(torch.Options{Threads: o.StepThreads}); err != nil {
		return err
	}
	devices, err := o.Device.Find(1)
	if err != nil {
		return err
	}
	compute := model.Options{}
	if o.ComputeDtype == "bf16" {
		compute.Compute = torch.BF16
	}
	if devices[0] == torch.CPU {
		devices = nil // the trainer's engine, without a copy
	}
	var parts parts
	trainer, err := train.New(ctx, train.Options{
		Model: m.snapshot, MicroBatch: o.Sequences, Threads: o.StepThreads, RunID: "bench",
		Devices: devices, Compute: compute, Timed: parts.add,
		Optimizer: config.Optimizer{Distro: &config.Distro{
			CompressionDecay: 0.999, CompressionTopK: uint16(o.TopK), CompressionChunk: uint16(o.Chunk), Quantize1Bit: true, ClipGradNorm: 1,
		}},
		LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 4e-4}},
	})
	if err != nil {
		return err
	}
	defer func() {
		if closed := trainer.Close(); err == nil {
			err = closed
		}
	}()
	var rounds []float64
	var payload []byte
	for step := uint32(1); step <= uint32(o.Steps); step++ {
		batch := o.batch(step)
		training, err := timed(func() error { payload, _, err = trainer.Train(ctx, step, batch, nil); return err })
		if err != nil {
			return err
		}
		payloads, err := o.payloads(m, payload, step)
		if err != nil {
			return err
		}
		applying, err := timed(func() error { return trainer.Apply(ctx, step, payloads, nil, true) })
		if err != nil {
			return err
		}
		rounds = append(rounds, training.wall+applying.wall)
		parts.add(train.Timing{Step: step, Part: "apply", Took: time.Duration(applying.wall * float64(time.Second))})
	}
	tokens := float64(o.Sequences * o.SeqLen)
	passes := median(parts.seconds["gradient"])
	fmt.Printf("forward and backward passes of %d × %d tokens, %d threads, device %s, %s: %.3f s, %.0f tokens/s\n",
		o.Sequences, o.SeqLen, o.StepThreads, o.Device, o.ComputeDtype, passes, tokens/passes)
	fmt.Printf("round with %d results: %.3f s, %.0f tokens/s\n", o.Peers, median(rounds), tokens/median(rounds))
	parts.print()
	share := (median(rounds) - passes) / passes
	bar(fmt.Sprintf("encode, and decode and apply %d results: part of the passes' time, %%", o.Peers), 100*share, "%6.2f", share <= 0.05, "≤ 5")

	return o.size(m, payload)
}

// parts are the durations of a trainer's parts.
type parts struct {
	names   []string // in order of appearance
	seconds map[string][]float64
}

func (p *parts) add(t train.Timing) {
	if p.seconds == nil {
		p.seconds = make(map[string][]float64)
	}
	if p.seconds[t.Part] == nil {
		p.names = append(p.names, t.Part)
	}
	p.seconds[t.Part] = append(p.seconds[t.Part], t.Took.Seconds())
}

func (p *parts) print() {
	for _, name := range p.names {
		fmt.Printf("  %-20s %.4f s\n", name, median(p.seconds[name]))
	}
}

// size compares the size of a result with the published format and the bound.
func (o options) size(m *tensors, payload []byte) error {
	_, results, err := codec.Decode(payload, m.codecs, true)
	if err != nil {
		return err
	}
	coefficients, bound, short := 0, 0.0, 0
	for i, layout := range m.codecs {
		for _, count := range results[i].Counts {
			coefficients += int(count)
			bound += logBinomial(layout.ChunkSize, int(count)) + float64(count)
			if int(count) < layout.K {
				short++
			}
		}
	}
	fmt.Printf("a result of step %d: %d bytes for %d coefficients, %d chunks with fewer than %d\n", o.Steps, len(payload), coefficients, short, o.TopK)
	published := float64(len(payload)) * 8 / (17 * float64(coefficients))
	bar("its bits / 17 bits per coefficient (u16 index and sign)", published, "%6.3f", published <= 0.66, "≤ 0.66")
	entropy := float64(len(payload)) * 8 / bound
	bar("its bits / bound: any set of this many coefficients, and signs", entropy, "%6.4f", entropy <= 1.01, "≤ 1.01")
	return nil
}

// batch returns sequences of random tokens.
func (o options) batch(step uint32) data.Batch {
	random := rand.New(rand.NewPCG(uint64(step), 1))
	first := uint64(step) * 100
	batch := data.Batch{ID: assign.BatchID{Start: first, End: first + uint64(o.Sequences)}}
	for range o.Sequences {
		sequence := make([]int32, o.SeqLen+1)
		for i := range sequence {
			sequence[i] = int32(random.IntN(8192))
		}
		batch.Sequences = append(batch.Sequences, sequence)
	}
	return batch
}

// payloads returns this member's result and, as a substitute for other members' results, results of
// other batches of the same step.
func (o options) payloads(m *tensors, own []byte, step uint32) ([][]byte, error) {
	header, _, err := codec.Decode(own, m.codecs, true)
	if err != nil {
		return nil, err
	}
	payloads := [][]byte{own}
	for peer := 1; peer < o.Peers; peer++ {
		header.BatchStart, header.BatchEnd = header.BatchEnd, header.BatchEnd+1
		header.Step = step
		results := make([]codec.TensorResult, len(m.received))
		for i := range results {
			results[i] = m.received[i][peer]
		}
		payload, err := codec.Encode(header, m.codecs, true, results)
		if err != nil {
			return nil, err
		}
		payloads = append(payloads, payload)
	}
	return payloads, nil
}

// logBinomial is the base-2 logarithm of the number of k-subsets of n.
func logBinomial(n, k int) float64 {
	sum := 0.0
	for i := range k {
		sum += math.Log2(float64(n-i)) - math.Log2(float64(i+1))
	}
	return sum
}
