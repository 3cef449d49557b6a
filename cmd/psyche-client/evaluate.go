package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/data/local"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/train"
)

type evaluateCommand struct {
	Model        string      `required:"" placeholder:"MODEL" help:"Hugging Face folder of the model, or OWNER/NAME on the Hub."`
	Data         string      `required:"" type:"path" placeholder:"PATH" help:"Token file, or folder of token files."`
	TokenSize    int         `default:"0" enum:"0,2,4,8" help:"Bytes of a token in the files: 2, 4 or 8; 0: as what lies beside them says (data.json, *.metadata, *.idx), or 2 if the vocabulary fits (${default})."`
	SeqLen       int         `placeholder:"N" help:"Tokens of a sequence; 0: the model's longest."`
	MaxSequences uint64      `default:"64" placeholder:"N" help:"Sequences to use, from the start of the data; 0: all (${default})."`
	MicroBatch   int         `default:"8" help:"Sequences that go through the model at once."`
	Threads      threadCount `placeholder:"N" help:"Threads of libtorch; 0: OMP_NUM_THREADS, else one for each CPU."`

	libraryFlags   `embed:""`
	inferenceFlags `embed:""`
	JSON           bool `help:"Print a JSON object; its perplexity is null where it is too large for a number."`
}

// evaluation is the command's result; losses are in nats per token.
type evaluation struct {
	Loss        float64 `json:"loss"`
	Perplexity  any     `json:"perplexity"` // a number; null: it is larger than any
	Sequences   int     `json:"sequences"`
	OfSequences uint64  `json:"of_sequences"` // that the data has
	Tokens      int     `json:"tokens"`
	Step        uint32  `json:"step"`
}

// Run prints the mean loss over the sequences.
func (c *evaluateCommand) Run(ctx context.Context, t terminal) error {
	dir, err := modelFolder(ctx, t, c.Model)
	if err != nil {
		return err
	}
	s, err := checkpoint.ReadDir(dir)
	if err != nil {
		return err
	}
	description, err := describe(s)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Model, err)
	}
	if c.SeqLen == 0 {
		c.SeqLen = description.MaxTokens
	}
	options := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: description.VocabSize}
	sequences, of, err := readFirst(ctx, c.Data, options, c.MaxSequences)
	if err != nil {
		return err
	}
	if err := c.load(c.Threads, t.logger()); err != nil {
		return err
	}
	devices, err := c.devices(1)
	if err != nil {
		return err
	}
	compute, err := chooseType(ctx, c.ComputeDtype, devices, t.logger())
	if err != nil {
		return err
	}
	evaluator, err := train.NewEvaluator(ctx, train.Options{
		Model: s, Compute: model.Options{Compute: compute}, MicroBatch: c.MicroBatch, Devices: devices,
		Threads: int(c.Threads), Logger: t.logger(),
	})
	if err != nil {
		return err
	}
	defer func() { _ = evaluator.Close() }()
	loss, err := evaluator.Evaluate(ctx, sequences)
	if err != nil {
		return err
	}
	perplexity := math.Exp(loss)
	result := evaluation{loss, perplexity, len(sequences), of, len(sequences) * c.SeqLen, s.Step}
	if c.JSON {
		if math.IsInf(perplexity, 0) {
			result.Perplexity = nil
		}
		return json.NewEncoder(t.Out).Encode(result)
	}
	_, err = fmt.Fprintf(t.Out, "loss %.4f nats per token, perplexity %.2f, over %d tokens in %d of %d sequences\n",
		result.Loss, perplexity, result.Tokens, result.Sequences, result.OfSequences)
	return err
}

func describe(s checkpoint.Snapshot) (model.Description, error) {
	config, _ := s.File(checkpoint.ConfigFile)
	return model.Describe(config)
}
