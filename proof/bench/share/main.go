package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

type command struct {
	Model   string  `default:"untied" enum:"tied,untied,moe" help:"Model: ${enum}."`
	Seed    uint64  `default:"1" help:"Seed of the first weights and the order of the text."`
	Steps   uint32  `default:"400" help:"Steps of the run."`
	Clients int     `default:"8" help:"Members, all honest."`
	Each    int     `default:"1" help:"Sequences of a member's batch."`
	Length  int     `default:"48" help:"Tokens of a sequence."`
	LR      float64 `default:"0.003" help:"Maximum learning rate."`
	Beta    float64 `default:"0.9" help:"Decay of the momentum."`
	TopK    uint16  `name:"topk" default:"4" help:"Coefficients sent per chunk."`
	Chunk   uint16  `default:"16" help:"Side length of a chunk."`
	Label   string  `help:"Label in the output line."`
}

// line is the result of a run.
type line struct {
	command
	Loss   float64 // of held-out text
	Share  float64 // mean share of the results that sent anything in a chunk, over the chunks in which any did
	Lonely float64 // share of the chunks in which some, but fewer than a third of the results sent anything
	Bytes  float64 // of a result, mean
}

func main() {
	var c command
	parsed := kong.Parse(&c, kong.Name("share"))
	parsed.FatalIfErrorf(c.Run(context.Background()))
}

// Run trains, and prints the result.
func (c *command) Run(ctx context.Context) (err error) {
	text, err := readText(c.Seed, c.Length)
	if err != nil {
		return err
	}
	var trainers []*train.Trainer
	defer func() {
		for _, t := range trainers {
			err = errors.Join(err, t.Close())
		}
	}()
	for i := range c.Clients {
		t, err := c.trainer(ctx, i)
		if err != nil {
			return err
		}
		trainers = append(trainers, t)
	}
	result := line{command: *c}
	for step := uint32(1); step <= c.Steps; step++ {
		if err := c.step(ctx, step, trainers, text, &result); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	result.Share, result.Lonely, result.Bytes = result.Share/float64(c.Steps), result.Lonely/float64(c.Steps), result.Bytes/float64(c.Steps)
	if result.Loss, err = trainers[0].Evaluate(ctx, text.heldOut); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (c *command) trainer(ctx context.Context, member int) (*train.Trainer, error) {
	configuration, err := json.Marshal(models[c.Model])
	if err != nil {
		return nil, err
	}
	o := train.Options{
		Model: checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: configuration}}},
		LRSchedule: config.LRSchedule{Cosine: &config.CosineLR{
			BaseLR: c.LR, WarmupSteps: c.Steps / 20, TotalSteps: c.Steps, FinalLR: c.LR / 20,
		}},
		MicroBatch: c.Each, Threads: 1, RunID: "share", TrainerID: [32]byte{byte(member) + 1},
	}
	o.Optimizer.Distro = &config.Distro{
		ClipGradNorm: 1, CompressionDecay: c.Beta, CompressionTopK: c.TopK, CompressionChunk: c.Chunk, Quantize1Bit: true, ApplyLag: 1,
	}
	if o.Model.Tensors, err = model.Init(configuration, c.Seed); err != nil {
		return nil, err
	}
	return train.New(ctx, o)
}

// step makes every member train its batch and apply all results.
func (c *command) step(ctx context.Context, step uint32, trainers []*train.Trainer, text *text, result *line) error {
	var payloads [][]byte
	for i, t := range trainers {
		first := (uint64(step-1)*uint64(c.Clients) + uint64(i)) * uint64(c.Each)
		batch := data.Batch{ID: assign.BatchID{Start: first, End: first + uint64(c.Each)}}
		for at := first; at < first+uint64(c.Each); at++ {
			batch.Sequences = append(batch.Sequences, text.training[at%uint64(len(text.training))])
		}
		payload, _, err := t.Train(ctx, step, batch, nil)
		if err != nil {
			return err
		}
		payloads = append(payloads, payload)
		result.Bytes += float64(len(payload)) / float64(c.Clients)
	}
	share, lonely, err := shares(trainers[0], payloads)
	if err != nil {
		return err
	}
	result.Share, result.Lonely = result.Share+share, result.Lonely+lonely
	for _, t := range trainers {
		if err := t.Apply(ctx, step, payloads, true); err != nil {
			return err
		}
	}
	return nil
}

// shares returns the mean share of results that sent anything in a chunk, over the chunks in which
// any did, and the share of all chunks in which some but fewer than a third did.
func shares(t *train.Trainer, payloads [][]byte) (mean, lonely float64, err error) {
	var speakers []int
	for _, payload := range payloads {
		_, tensors, err := t.Decode(payload)
		if err != nil {
			return 0, 0, err
		}
		at := 0
		for _, r := range tensors {
			for _, count := range r.Counts {
				if at == len(speakers) {
					speakers = append(speakers, 0)
				}
				if count > 0 {
					speakers[at]++
				}
				at++
			}
		}
	}
	spoken, sum := 0, 0.0
	for _, n := range speakers {
		if n > 0 {
			spoken++
			sum += float64(n) / float64(len(payloads))
			if 3*n < len(payloads) {
				lonely += 1 / float64(len(speakers))
			}
		}
	}
	return sum / math.Max(1, float64(spoken)), lonely, nil
}
