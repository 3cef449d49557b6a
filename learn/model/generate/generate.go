package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// errOptions means that options or a prompt are invalid.
var errOptions = errors.New("invalid options")

// Options are the settings for choosing tokens. They apply in this order: the penalty, the
// temperature, TopK, TopP.
type Options struct {
	MaxTokens int     // maximum number of tokens, at least 1
	Stop      []int32 // tokens that end the text; they are not emitted
	Vocab     int     // only IDs below this are chosen; 0: all of the model's

	// Temperature divides the logits. 0 always takes the most likely token, and among equal ones
	// the one with the lowest ID.
	Temperature float64
	TopK        int     // choose among this number of most likely tokens; 0: all
	TopP        float64 // and among the fewest of these with this total probability; 1: all
	// RepetitionPenalty applies to tokens that already occur in the text. It divides their positive
	// logits and multiplies their negative ones (Keskar et al., arXiv 1909.05858); 1: no penalty.
	RepetitionPenalty float64
	Seed              uint64 // of the draws

	// Observe, if not nil, is called with the model's logits for each token before the penalty and
	// the choice of the token. It must neither change nor keep them.
	Observe func(logits []float32)
}

func (o Options) check() error {
	switch {
	case o.MaxTokens < 1:
		return fmt.Errorf("%w: %d tokens, want at least 1", errOptions, o.MaxTokens)
	case o.Vocab < 0:
		return fmt.Errorf("%w: a vocabulary of %d", errOptions, o.Vocab)
	case !(o.Temperature >= 0 && o.Temperature <= 1e6):
		return fmt.Errorf("%w: temperature %v, want 0 to 1e6", errOptions, o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("%w: top-k %d, want at least 0", errOptions, o.TopK)
	case !(o.TopP > 0 && o.TopP <= 1):
		return fmt.Errorf("%w: top-p %v, want more than 0, at most 1", errOptions, o.TopP)
	case !(o.RepetitionPenalty > 0 && o.RepetitionPenalty <= 1e6):
		return fmt.Errorf("%w: repetition penalty %v, want more than 0, at most 1e6", errOptions, o.RepetitionPenalty)
	}
	return nil
}

// Model is a [model.Model] for generating texts. Its methods are documented there.
type Model interface {
	Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor
	NewCache() *kvcache.Cache
	VocabSize() int
	MaxTokens() int
	Engine() *torch.Engine
}

// Tokens calls emit with each token that follows the prompt, until a token of Stop, MaxTokens, or
// an error of emit.
//
// The context is limited to the model's longest sequence. When it is full, generation continues
// with the newer half of it.
func Tokens(ctx context.Context, m Model, prompt []int32, o Options, emit func(id int32) error) error {
	return NewTogether(m).Tokens(ctx, prompt, o, emit)
}

// Tokens is the function Tokens for one of several texts.
func (g *Together) Tokens(ctx context.Context, prompt []int32, o Options, emit func(id int32) error) error {
	m := g.model
	if err := o.check(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if len(prompt) == 0 {
		return fmt.Errorf("generate: %w: the prompt is empty", errOptions)
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= m.VocabSize() {
			return fmt.Errorf("generate: %w: token %d of the prompt is %d, the model's vocab_size is %d", errOptions, i, id, m.VocabSize())
		}
	}
	g.enter()
	defer g.leave()
	w := writer{together: g, model: m, cache: m.NewCache(), text: slices.Clone(prompt), sampler: newSampler(o)}
	err := w.write(ctx, o, emit)
	// The memory is also freed after a cancellation.
	free := m.Engine().Do(context.WithoutCancel(ctx), false, func(*torch.Scope) error {
		w.cache.Free()
		return nil
	})
	if err := errors.Join(err, free); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

// writer generates one text.
type writer struct {
	together *Together
	model    Model
	cache    *kvcache.Cache
	text     []int32
	sampler  sampler
}

func (w *writer) write(ctx context.Context, o Options, emit func(id int32) error) error {
	fresh := w.text[max(0, len(w.text)-w.model.MaxTokens()):] // tokens that the model has not seen
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

// next returns the logits of the token that follows ids. ids follow the cached tokens.
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
