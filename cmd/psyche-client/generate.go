package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/torch"
)

type generateCommand struct {
	usedModel         `embed:""`
	Prompt            string      `required:"" placeholder:"TEXT" help:"Text to continue."`
	Chat              bool        `help:"Put the prompt into the model's chat template as a user message, and print only the answer."`
	MaxTokens         int         `default:"200" help:"Maximum number of tokens to generate."`
	Temperature       float64     `default:"0.8" help:"Sampling temperature: 1 uses the model's probabilities, lower values prefer likely tokens, 0 always takes the most likely token."`
	TopK              int         `default:"0" help:"Sample from the K most likely tokens; 0 means all."`
	TopP              float64     `default:"1" help:"Sample from the smallest set of tokens whose probabilities add up to P; 1 means all."`
	RepetitionPenalty float64     `default:"1" help:"Penalty for tokens that the text already contains: values above 1 make them less likely; 1 means no penalty."`
	Seed              uint64      `default:"0" help:"Sampling seed: the same seed generates the same text."`
	IgnoreEOS         bool        `name:"ignore-eos" help:"Continue after an end-of-text token."`
	Threads           threadCount `placeholder:"N" help:"Threads of libtorch. 0 uses OMP_NUM_THREADS, or else one thread per CPU."`
	libraryFlags      `embed:""`
	inferenceFlags    `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *generateCommand) Help() string {
	return `Prints the prompt and continues it token by token, until the model ends the text (eos_token_id
of generation_config.json, or of config.json) or --max-tokens are generated. When a text exceeds
the model's longest sequence, generation continues from the newer half of the model's context.

With --chat, the template in chat_template.jinja or tokenizer_config.json formats the prompt as
a user message, up to the start of the model's answer. If the template uses an unsupported
feature, the command fails and names it. It also fails if the prompt contains control tokens of
the model, because they would end the message.

With the invite link of a run, uses the newest model that the run recorded, and verifies its digest. The
model comes from your checkpoint folder, from the run's server if that server offers it, or from the
locations of members' uploads, and stays in psyche/recorded in your cache.`
}

// Run prints the prompt and its continuation.
func (c *generateCommand) Run(ctx context.Context, t terminal) error {
	s, err := c.read(ctx, t)
	if err != nil {
		return err
	}
	coder, err := readTokenizer(c.Model, s)
	if err != nil {
		return err
	}
	ends, err := generate.EndTokens(s)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Model, err)
	}
	ids, err := c.encode(coder, s, ends)
	if err != nil {
		return err
	}
	if err := c.load(c.Threads, t.logger()); err != nil {
		return err
	}
	network, err := c.network(ctx, t, s)
	if err != nil {
		return err
	}
	defer func() { _ = network.Engine().Close() }()
	options := c.options(ends)
	options.Vocab = coder.VocabSize() // never choose rows of the embedding without a token
	return c.write(ctx, t, network, coder, ids, options)
}

// encode returns the ids of the text to continue.
func (c *generateCommand) encode(coder *tokenizer.Tokenizer, s checkpoint.Snapshot, ends []int32) (ids []int32, err error) {
	if !c.Chat {
		ids, err = coder.EncodeWithSpecial([]byte(c.Prompt))
	} else {
		var template *chat.Template
		var named map[string]string
		if template, named, err = chat.Load(s.File); err != nil {
			return nil, fmt.Errorf("--chat: %s: %w", c.Model, err)
		}
		ids, err = template.Encode(coder, chat.Input{
			Messages: []chat.Message{{Role: "user", Content: c.Prompt}}, AddGenerationPrompt: true, Tokens: named, Now: time.Now(),
		}, ends)
		if err != nil && !errors.Is(err, chat.ErrControl) {
			return nil, fmt.Errorf("--chat: the chat template of %s: %w", c.Model, err)
		}
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("--prompt: %w", err)
	case len(ids) == 0:
		return nil, errors.New("--prompt is empty")
	}
	return ids, nil
}

// readTokenizer returns the tokenizer of the named model.
func readTokenizer(name string, s checkpoint.Snapshot) (*tokenizer.Tokenizer, error) {
	coder, err := tokenizer.Find(s.File)
	switch {
	case errors.Is(err, tokenizer.ErrNone):
		return nil, fmt.Errorf("%s: %w; a tokenizer is needed to convert text to tokens: copy the tokenizer file of the training data into the folder of the model (for data of bytes, init-model --tokenizer bytes creates a tokenizer)", name, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return coder, nil
}

// network builds the model on a new engine.
func (f inferenceFlags) network(ctx context.Context, t terminal, s checkpoint.Snapshot) (model.Model, error) {
	devices, err := f.devices(1)
	if err != nil {
		return nil, err
	}
	compute, err := chooseType(ctx, f.ComputeDtype, devices, t.logger())
	if err != nil {
		return nil, err
	}
	engine, err := torch.NewEngine(append(devices, torch.CPU)[0])
	if err != nil {
		return nil, err
	}
	if compute == torch.BF16 {
		if err := engine.CheckBF16(ctx); err != nil && !errors.Is(err, torch.ErrSlowType) {
			return nil, errors.Join(err, engine.Close())
		}
	}
	config, _ := s.File(checkpoint.ConfigFile)
	network, err := model.New(ctx, engine, config, model.Options{Compute: compute}, s.Tensors)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return network, nil
}

func (c *generateCommand) options(ends []int32) generate.Options {
	o := generate.Options{
		MaxTokens: c.MaxTokens, Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP,
		RepetitionPenalty: c.RepetitionPenalty, Seed: c.Seed,
	}
	if !c.IgnoreEOS {
		o.Stop = ends
	}
	return o
}

// write prints the prompt, and each token as soon as it is chosen.
func (c *generateCommand) write(ctx context.Context, t terminal, network model.Model, coder *tokenizer.Tokenizer, ids []int32, o generate.Options) error {
	stream, err := coder.NewStream(ids)
	if err != nil {
		return err
	}
	started := false // errors of the options come before the prompt
	start := func() error {
		if started {
			return nil
		}
		started = true
		if c.Chat {
			return nil
		}
		_, err := fmt.Fprint(t.Out, c.Prompt)
		return err
	}
	err = generate.Tokens(ctx, network, ids, o, func(id int32) error {
		piece, err := stream.Next(id)
		if err != nil {
			return err
		}
		if err := start(); err != nil {
			return err
		}
		_, err = t.Out.Write(piece)
		return err
	})
	if err != nil {
		return err
	}
	rest, err := stream.Flush()
	if err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Out, "%s\n", rest)
	return err
}
