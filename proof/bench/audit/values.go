package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
)

// valuesCommand trains runs that send signs or values, with attackers that send larger ones.
type valuesCommand struct {
	Model     string  `default:"proof/bench/parity/model-small.json" type:"existingfile" help:"config.json of the model."`
	Text      string  `type:"path" help:"Folder of the .go files to train on. Default: the standard library."`
	Trainers  int     `default:"3" help:"Trainers of a run."`
	Attackers int     `default:"1" help:"Number of these trainers that send the negative of their result in the runs with attackers."`
	Steps     uint32  `default:"100" help:"Training steps."`
	Sequences int     `default:"2" help:"Sequences of a trainer's batch."`
	Length    int     `default:"64" help:"Tokens of a sequence."`
	LR        float64 `default:"0.001" help:"Learning rate."`
	Seeds     uint64  `default:"2" help:"Runs of each kind."`
}

func (c *valuesCommand) Run(ctx context.Context) error {
	text, err := readText(c.Text)
	if err != nil {
		return err
	}
	fmt.Printf("%d trainers, %d steps of %d × %d × %d tokens; loss on 64 held-out sequences\n\n| mode | attackers | loss by seed |\n|---|---|---|\n",
		c.Trainers, c.Steps, c.Trainers, c.Sequences, c.Length)
	for _, attack := range []struct {
		number int
		factor float32
	}{{0, 1}, {c.Attackers, -1}, {c.Attackers, -1e6}} {
		for _, mode := range []string{"signs", "values"} {
			if mode == "signs" && attack.factor < -1 {
				continue
			}
			fmt.Printf("| %s | %d × %g |", mode, attack.number, attack.factor)
			for seed := range c.Seeds {
				loss, err := c.train(ctx, text, mode, attack.number, attack.factor, seed)
				if err != nil {
					return err
				}
				fmt.Printf(" %.3f", loss)
			}
			fmt.Println(" |")
		}
	}
	return nil
}

// train makes the trainers share one replica of the weights, because all replicas would be equal.
func (c *valuesCommand) train(ctx context.Context, text []byte, mode string, attackers int, factor float32, seed uint64) (loss float64, err error) {
	var all []*train.Trainer
	defer func() {
		for _, t := range all {
			err = errors.Join(err, t.Close())
		}
	}()
	for i := range c.Trainers {
		t, err := newTrainer(ctx, c.Model, options{lr: c.LR, threads: 1, micro: c.Sequences, signs: mode == "signs", id: byte(i) + 1})
		if err != nil {
			return 0, err
		}
		all = append(all, t)
	}
	held, learned := text[:1<<15], text[1<<15:]
	random := rand.New(rand.NewPCG(seed, 7))
	for step := uint32(1); step <= c.Steps; step++ {
		var payloads [][]byte
		for i, t := range all {
			batch := data.Batch{ID: assign.BatchID{Start: uint64(i * c.Sequences), End: uint64((i + 1) * c.Sequences)}, Sequences: cutText(learned, random, c.Sequences, c.Length)}
			payload, _, err := t.Train(ctx, step, batch, nil)
			if err != nil {
				return 0, err
			}
			if i < attackers {
				payload, err = rewritten(t, payload, mode == "signs", func(values []float32) { multiply(values, factor) })
			}
			if err != nil {
				return 0, err
			}
			payloads = append(payloads, payload)
		}
		for _, t := range all {
			if err := t.Apply(ctx, step, payloads, true); err != nil {
				return 0, err
			}
		}
	}
	return all[0].Evaluate(ctx, cutText(held, rand.New(rand.NewPCG(3, 3)), 64, c.Length))
}

// rewritten changes the values of each chunk of a result.
func rewritten(t *train.Trainer, payload []byte, signs bool, change func(values []float32)) ([]byte, error) {
	header, results, err := t.Decode(payload)
	if err != nil {
		return nil, err
	}
	var layouts []codec.TensorLayout
	for i, s := range t.Shapes() {
		layouts = append(layouts, codec.TensorLayout{Chunks: s.Chunks, ChunkSize: s.Rows * s.Cols, K: s.K})
		for chunk := range s.Chunks {
			change(results[i].Values[chunk*s.K:][:results[i].Counts[chunk]])
		}
	}
	return codec.Encode(header, layouts, signs, results)
}

func multiply(values []float32, by float32) {
	for i := range values {
		if values[i] *= by; values[i] == 0 {
			values[i] = math.SmallestNonzeroFloat32
		}
	}
}

func cutText(text []byte, random *rand.Rand, sequences, length int) (batch [][]int32) {
	for range sequences {
		at := random.IntN(len(text) - length - 1)
		sequence := make([]int32, 0, length+1)
		for _, b := range text[at : at+length+1] {
			sequence = append(sequence, int32(b))
		}
		batch = append(batch, sequence)
	}
	return batch
}
