package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// ErrOptions says that options or a prompt make no sense.
var ErrOptions = errors.New("invalid options")

// Options say how tokens are chosen, in this order: the penalty, the temperature, TopK,
// TopP.
type Options struct {
	MaxTokens int     // to write at most, at least 1
	Stop      []int32 // tokens that end the text; they are not handed out
	Vocab     int     // only ids below this are chosen; 0: all of the model's

	// Temperature divides the logits. 0 always takes the most likely token, of equal
	// ones that of the lower id.
	Temperature float64
	TopK        int     // choose among so many of the most likely tokens; 0: all
	TopP        float64 // and of those the fewest that have this probability together; 1: all
	// RepetitionPenalty divides the logits above 0 of tokens that the text has already,
	// and multiplies those below (Keskar et al., arXiv 1909.05858); 1: none.
	RepetitionPenalty float64
	Seed              uint64 // of the draws

	// Observe, if it is not nil, gets the model's logits for each token before the token is chosen, and before the
	// penalty. It must neither change nor keep them.
	Observe func(logits []float32)
}

func (o Options) check() error {
	switch {
	case o.MaxTokens < 1:
		return fmt.Errorf("%w: %d tokens, want at least 1", ErrOptions, o.MaxTokens)
	case o.Vocab < 0:
		return fmt.Errorf("%w: a vocabulary of %d", ErrOptions, o.Vocab)
	case !(o.Temperature >= 0 && o.Temperature <= 1e6):
		return fmt.Errorf("%w: temperature %v, want 0 to 1e6", ErrOptions, o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("%w: top-k %d, want at least 0", ErrOptions, o.TopK)
	case !(o.TopP > 0 && o.TopP <= 1):
		return fmt.Errorf("%w: top-p %v, want more than 0, at most 1", ErrOptions, o.TopP)
	case !(o.RepetitionPenalty > 0 && o.RepetitionPenalty <= 1e6):
		return fmt.Errorf("%w: repetition penalty %v, want more than 0, at most 1e6", ErrOptions, o.RepetitionPenalty)
	}
	return nil
}

// Tokens calls emit with each token that follows the prompt, until a token of Stop, or
// MaxTokens, or an error of emit.
//
// The model sees at most its longest sequence. When that is full, it goes on with the
// newer half of it.
func Tokens(ctx context.Context, m model.Model, prompt []int32, o Options, emit func(id int32) error) error {
	return NewTogether(m).Tokens(ctx, prompt, o, emit)
}

// Tokens is the function of that name, for one of several texts.
func (g *Together) Tokens(ctx context.Context, prompt []int32, o Options, emit func(id int32) error) error {
	m := g.model
	if err := o.check(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if len(prompt) == 0 {
		return fmt.Errorf("generate: %w: the prompt is empty", ErrOptions)
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= m.VocabSize() {
			return fmt.Errorf("generate: %w: token %d of the prompt is %d, the model's vocab_size is %d", ErrOptions, i, id, m.VocabSize())
		}
	}
	g.enter()
	defer g.leave()
	w := writer{together: g, model: m, cache: m.NewCache(), text: slices.Clone(prompt), sampler: newSampler(o)}
	err := w.write(ctx, o, emit)
	// The memory of a cancelled one is freed too.
	free := m.Engine().Do(context.WithoutCancel(ctx), false, func(*torch.Scope) error {
		w.cache.Free()
		return nil
	})
	if err := errors.Join(err, free); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

// writer is a text in the making.
type writer struct {
	together *Together
	model    model.Model
	cache    *kvcache.Cache
	text     []int32
	sampler  sampler
}

func (w *writer) write(ctx context.Context, o Options, emit func(id int32) error) error {
	fresh := w.text[max(0, len(w.text)-w.model.MaxTokens()):] // what the model has not seen
	for range o.MaxTokens {
		logits, err := w.next(ctx, fresh)
		if err != nil {
			return err
		}
		if o.Observe != nil {
			o.Observe(logits)
		}
		if o.Vocab > 0 {
			logits = logits[:min(len(logits), o.Vocab)]
		}
		id, err := w.sampler.next(logits, w.text)
		if err != nil {
			return err
		}
		if slices.Contains(o.Stop, id) {
			return nil
		}
		if err := emit(id); err != nil {
			return err
		}
		w.text = append(w.text, id)
		fresh = w.text[len(w.text)-1:]
		if int(w.cache.Len()) >= w.model.MaxTokens() {
			w.cache.Reset()
			fresh = w.text[len(w.text)-max(w.model.MaxTokens()/2, 1):]
		} else if w.cache.Crosses(1) {
			fresh = w.text[len(w.text)-int(w.cache.Len())-1:]
			w.cache.Reset()
		}
	}
	return nil
}

// next returns the logits of the token that follows ids, which follow the cache.
func (w *writer) next(ctx context.Context, ids []int32) (logits []float32, err error) {
	if w.cache.Len() == 0 {
		w.cache.Expect(int64(len(ids)))
	}
	for piece := range slices.Chunk(ids, maxPiece) {
		if logits, err = w.together.next(ctx, kvcache.Text{IDs: piece, Cache: w.cache}); err != nil {
			return nil, err
		}
	}
	return logits, nil
}
