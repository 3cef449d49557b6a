package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/tokenizer"
	"github.com/psyche-go/psyche/torch"
)

type generateCommand struct {
	Model       string      `required:"" type:"existingdir" placeholder:"DIR" help:"Hugging Face folder of the model."`
	Prompt      string      `required:"" placeholder:"TEXT" help:"Text to go on from."`
	MaxTokens   int         `default:"200" placeholder:"N" help:"Tokens to write."`
	Temperature float64     `default:"0.8" help:"How freely to choose; 0: always the most likely token."`
	TopK        int         `default:"0" help:"Choose among so many of the most likely tokens; 0: all."`
	Seed        uint64      `default:"0" help:"Of the choices."`
	Threads     threadCount `placeholder:"N" help:"Threads of libtorch; 0: one for each CPU."`

	libraryFlags `embed:""`
}

// Run prints the prompt and what follows it.
func (c *generateCommand) Run(ctx context.Context, t terminal) error {
	if c.MaxTokens < 1 || c.TopK < 0 || !(c.Temperature >= 0) {
		return fmt.Errorf("--max-tokens %d, --top-k %d, --temperature %v: want at least 1, 0 and 0", c.MaxTokens, c.TopK, c.Temperature)
	}
	s, err := checkpoint.ReadDir(c.Model)
	if err != nil {
		return err
	}
	text, found := s.File(tokenizerFile)
	if !found {
		return fmt.Errorf("%s has no %s", c.Model, tokenizerFile)
	}
	coder, err := tokenizer.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", c.Model, tokenizerFile, err)
	}
	ids, err := coder.EncodeWithSpecial([]byte(c.Prompt))
	if err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	if len(ids) == 0 {
		return errors.New("--prompt is empty")
	}
	if err := c.load(c.Threads, t.logger()); err != nil {
		return err
	}
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	config, _ := s.File(checkpoint.ConfigFile)
	network, err := model.New(ctx, engine, config, model.Options{}, s.Tensors)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(t.Out, c.Prompt); err != nil {
		return err
	}
	if err := c.write(ctx, t, network, coder, ids, endTokens(s)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.Out)
	return err
}

// write prints one token after the other. The model sees at most its longest sequence.
func (c *generateCommand) write(ctx context.Context, t terminal, network model.Model, coder *tokenizer.Tokenizer, ids, end []int32) error {
	choose := sampler{c.Temperature, c.TopK, rand.New(rand.NewPCG(c.Seed, 0))}
	stream, err := coder.NewStream(ids)
	if err != nil {
		return err
	}
	for range c.MaxTokens {
		window := ids[max(0, len(ids)-network.MaxTokens()):]
		logits, err := nextLogits(ctx, network, window)
		if err != nil {
			return err
		}
		// Rows of the embedding that no token has are never meant.
		id := choose.next(logits[:min(len(logits), coder.VocabSize())])
		if slices.Contains(end, id) {
			break
		}
		ids = append(ids, id)
		piece, err := stream.Next(id)
		if err != nil {
			return err
		}
		if _, err := t.Out.Write(piece); err != nil {
			return err
		}
	}
	rest, err := stream.Flush()
	if err != nil {
		return err
	}
	_, err = t.Out.Write(rest)
	return err
}

// nextLogits returns the logits of the token that follows ids.
func nextLogits(ctx context.Context, network model.Model, ids []int32) (logits []float32, err error) {
	err = network.Engine().Do(ctx, false, func(s *torch.Scope) error {
		length := int64(len(ids))
		all := network.Forward(s, s.FromInt32s(ids, 1, length))
		logits = all.Narrow(1, length-1, 1).Contiguous().CopyFloat32s()
		return nil
	})
	return logits, err
}

// endTokens returns the ids that end a text, as generation_config.json or else config.json
// names them: one, several or none.
func endTokens(s checkpoint.Snapshot) []int32 {
	for _, name := range []string{"generation_config.json", checkpoint.ConfigFile} {
		data, found := s.File(name)
		if !found {
			continue
		}
		var one struct {
			EOS *int32 `json:"eos_token_id"`
		}
		if json.Unmarshal(data, &one) == nil && one.EOS != nil {
			return []int32{*one.EOS}
		}
		var several struct {
			EOS []int32 `json:"eos_token_id"`
		}
		if json.Unmarshal(data, &several) == nil && len(several.EOS) > 0 {
			return several.EOS
		}
	}
	return nil
}
