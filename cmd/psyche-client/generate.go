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
	Model             string      `required:"" placeholder:"MODEL" help:"Hugging Face folder of the model, or OWNER/NAME on the Hub."`
	Prompt            string      `required:"" placeholder:"TEXT" help:"Text to go on from."`
	Chat              bool        `help:"Take the prompt as a user's message, put into the model's chat template, and print the answer alone."`
	MaxTokens         int         `default:"200" help:"Tokens to write at most."`
	Temperature       float64     `default:"0.8" help:"How freely to choose: 1 as the model was trained, less is safer, 0 always takes the most likely token."`
	TopK              int         `default:"0" help:"Choose among so many of the most likely tokens; 0: all."`
	TopP              float64     `default:"1" help:"Choose among the fewest tokens whose probabilities add up to this; 1: all."`
	RepetitionPenalty float64     `default:"1" help:"Makes tokens that the text has already less likely, above 1; 1: leaves them."`
	Seed              uint64      `default:"0" help:"Of the choices: the same seed writes the same text."`
	IgnoreEOS         bool        `name:"ignore-eos" help:"Go on after a token that ends a text."`
	Threads           threadCount `placeholder:"N" help:"Threads of libtorch; 0: OMP_NUM_THREADS, else one for each CPU."`
	libraryFlags      `embed:""`
	inferenceFlags    `embed:""`
}

// Help is shown by --help below the command's summary.
func (c *generateCommand) Help() string {
	return `Prints the prompt and goes on from it, token by token as they are chosen, until the
model ends the text (eos_token_id of generation_config.json, or of config.json) or
--max-tokens are written. A text longer than the model's longest sequence goes on from
the newer half of what the model can see.

With --chat the template of chat_template.jinja, or of tokenizer_config.json, makes one text
of the prompt as a user's message, up to where the model's answer begins. What a template uses
that this program does not know is an error that names it, and so are control tokens of the
model in the prompt, which would end the message.`
}

// Run prints the prompt and what follows it.
func (c *generateCommand) Run(ctx context.Context, t terminal) error {
	s, err := readModel(ctx, t, c.Model)
	if err != nil {
		return err
	}
	coder, err := readTokenizer(c.Model, s)
	if err != nil {
		return err
	}
	ends, err := endTokens(s)
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
	options.Vocab = coder.VocabSize() // rows of the embedding that no token has are never meant
	return c.write(ctx, t, network, coder, ids, options)
}

// encode returns the ids that the model goes on from.
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

// readTokenizer returns the tokenizer of a model of the given name.
func readTokenizer(name string, s checkpoint.Snapshot) (*tokenizer.Tokenizer, error) {
	coder, err := tokenizer.Find(s.File)
	switch {
	case errors.Is(err, tokenizer.ErrNone):
		return nil, fmt.Errorf("%s: %w, without which text cannot become tokens; put the file there with which its training data was made (init-model --tokenizer bytes makes one for bytes)", name, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return coder, nil
}

// network makes the model on an engine of its own.
func (c inferenceFlags) network(ctx context.Context, t terminal, s checkpoint.Snapshot) (model.Model, error) {
	devices, err := c.devices(1)
	if err != nil {
		return nil, err
	}
	compute, err := chooseType(ctx, c.ComputeDtype, devices, t.logger())
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
	started := false // an error of the options comes before the prompt
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
