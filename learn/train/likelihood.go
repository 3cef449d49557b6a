package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// MaxTokens returns the length of the model's longest sequence.
func (r *replica) MaxTokens() int { return r.model.MaxTokens() }

// inTurns lets use work on the model. Between two parts of its work, use calls yield, in which
// callers that wait for the model to train it go first.
func (r *replica) inTurns(ctx context.Context, use func(network model.Model, yield func() error) error) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	held := true
	defer func() {
		if held {
			r.unlock()
		}
	}()
	network := r.model
	if r.parallel != nil {
		var err error
		if network, err = r.parallel.evaluates(ctx); err != nil {
			return err
		}
	}
	before := r.changes
	return use(network, func() error {
		r.unlock()
		held = false
		if err := r.lock(ctx); err != nil {
			return err
		}
		held = true
		if r.changes != before {
			return ErrChanged
		}
		return nil
	})
}

// LogLikelihoods returns, for each continuation, the logarithm of the probability that it follows
// the tokens of before. The first tokens of before are cut off if the whole is longer than the
// model's longest sequence. If the model is trained meanwhile, the error is ErrChanged.
func (r *replica) LogLikelihoods(ctx context.Context, before []int32, continuations [][]int32) (out []float64, err error) {
	if err := r.checkTokens(before, continuations); err != nil {
		return nil, fmt.Errorf("log-likelihood: %w", err)
	}
	err = r.inTurns(ctx, func(network model.Model, yield func() error) error {
		if !slices.ContainsFunc(continuations, func(c []int32) bool { return len(c) != 1 }) {
			out, err = oneToken(ctx, network, before, continuations)
			return err
		}
		for i, continuation := range continuations {
			if i > 0 {
				if err := yield(); err != nil {
					return err
				}
			}
			l, err := likelihood(ctx, network, before, continuation)
			if err != nil {
				return err
			}
			out = append(out, l)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("log-likelihood: %w", err)
	}
	return out, nil
}

func (r *replica) checkTokens(before []int32, continuations [][]int32) error {
	if len(before) == 0 {
		return fmt.Errorf("%w: there is nothing to follow", errTokens)
	}
	for i, ids := range slices.Insert(slices.Clone(continuations), 0, before) {
		if len(ids) == 0 || i > 0 && len(ids) > r.model.MaxTokens() {
			return fmt.Errorf("%w: continuation %d has %d tokens, want 1 to %d", errTokens, i-1, len(ids), r.model.MaxTokens())
		}
		for _, id := range ids {
			if id < 0 || id >= r.cutter.vocabSize {
				return fmt.Errorf("%w: token %d, the model's vocab_size is %d; is the tokenizer this model's?", errTokens, id, r.cutter.vocabSize)
			}
		}
	}
	return nil
}

// likelihood passes a text through the model once.
func likelihood(ctx context.Context, network model.Model, before, continuation []int32) (l float64, err error) {
	all := slices.Concat(before, continuation)
	all = all[max(0, len(all)-network.MaxTokens()-1):]
	columns := len(all) - 1
	targets := slices.Clone(all[1:])
	for i := range columns - len(continuation) {
		targets[i] = torch.IgnoreTarget
	}
	err = network.Engine().Do(ctx, false, func(s *torch.Scope) error {
		loss := network.Loss(s, s.FromInt32s(all[:columns], 1, int64(columns)), s.FromInt32s(targets, 1, int64(columns)))
		l = -loss.Item() * float64(len(continuation))
		return nil
	})
	return l, err
}

// oneToken passes the context through the model once for all continuations, which have one token
// each.
func oneToken(ctx context.Context, network model.Model, before []int32, continuations [][]int32) ([]float64, error) {
	before = before[max(0, len(before)-network.MaxTokens()):]
	var logits []float32
	err := network.Engine().Do(ctx, false, func(s *torch.Scope) error {
		cache := network.NewCache()
		defer cache.Free()
		logits = network.Next(s, kvcache.Text{IDs: before, Cache: cache}).CopyFloat32s()
		return nil
	})
	if err != nil {
		return nil, err
	}
	maximum, sum := float64(slices.Max(logits)), 0.0
	for _, logit := range logits {
		sum += math.Exp(float64(logit) - maximum)
	}
	out := make([]float64, len(continuations))
	for i, c := range continuations {
		out[i] = float64(logits[c[0]]) - maximum - math.Log(sum)
	}
	return out, nil
}

// errEnough ends a text.
var errEnough = errors.New("enough")

// Write continues a text until emit returns false. limit is the maximum number of tokens. temperature is as in
// package generate. If the model is trained meanwhile, the error is ErrChanged.
func (r *replica) Write(ctx context.Context, text []int32, limit int, temperature float64, seed uint64, emit func(id int32) (more bool)) error {
	o := generate.Options{MaxTokens: limit, Temperature: temperature, TopP: 1, RepetitionPenalty: 1, Seed: seed}
	err := r.inTurns(ctx, func(network model.Model, yield func() error) error {
		return generate.Tokens(ctx, network, text, o, func(id int32) error {
			if !emit(id) {
				return errEnough
			}
			return yield()
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}
