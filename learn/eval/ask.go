package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// errTooLong means that a choice alone has more tokens than the model's longest sequence.
var errTooLong = errors.New("a choice is longer than the model's longest sequence")

// LM is a language model.
type LM interface {
	// LogLikelihoods returns, for each continuation, the logarithm of the probability that it
	// follows the context. A context that is too long is cut at its beginning.
	LogLikelihoods(ctx context.Context, context []int32, continuations [][]int32) ([]float64, error)
	// Write continues a text until emit, which it calls with each token, returns more = false. limit is
	// the maximum number of tokens. A temperature of 0 always takes the most likely token.
	Write(ctx context.Context, text []int32, limit int, temperature float64, seed uint64, emit func(id int32) (more bool)) error
	// MaxTokens returns the length of the longest sequence.
	MaxTokens() int
}

// Coder converts text to tokens and back.
type Coder interface {
	Encode(text []byte) ([]int32, error)
	EncodeWithSpecial(text []byte) ([]int32, error)
	DecodeSkipSpecial(ids []int32) ([]byte, error)
	VocabSize() int
}

// Reader is a model with its tokenizer.
type Reader struct {
	LM    LM
	Coder Coder
	Begin *int32  // token that represents an empty context; nil: none
	Stop  []int32 // tokens that end a text
	// MaxWritten is the maximum number of tokens of a written answer; 0: 2048, or half of the
	// model's longest sequence.
	MaxWritten int
}

// Answer is a model's answer to a question.
type Answer struct {
	LogLikelihoods []float64          // of the choices
	Text           string             // generated text
	Scores         map[string]float64 // 0 or 1
}

// Ask returns the model's answer to a question.
func (r Reader) Ask(ctx context.Context, q Question) (Answer, error) {
	var a Answer
	var err error
	if len(q.Choices) == 0 {
		a, err = r.write(ctx, q)
	} else {
		a, err = r.choose(ctx, q)
	}
	if err != nil {
		return a, fmt.Errorf("task %s, question %d: %w", q.Task, q.Index, err)
	}
	return a, nil
}

func (r Reader) choose(ctx context.Context, q Question) (Answer, error) {
	continuations := make([][]int32, len(q.Choices))
	var before []int32
	for i, choice := range q.Choices {
		var err error
		if before, continuations[i], err = r.encode(q.Context, " "+choice); err != nil {
			return Answer{}, err
		}
		if n := len(continuations[i]); n == 0 || n > r.LM.MaxTokens() {
			return Answer{}, fmt.Errorf("%w: choice %d has %d tokens, want 1 to %d", errTooLong, i, n, r.LM.MaxTokens())
		}
	}
	likely, err := r.LM.LogLikelihoods(ctx, before, continuations)
	if err != nil {
		return Answer{}, err
	}
	for i, l := range likely {
		if math.IsNaN(l) {
			return Answer{}, fmt.Errorf("the likelihood of choice %d is not a number; check that the weights come from a trained model", i)
		}
	}
	normed := make([]float64, len(likely))
	for i := range likely {
		normed[i] = likely[i] / float64(utf8.RuneCountInString(q.Choices[i]))
	}
	return Answer{LogLikelihoods: likely, Scores: map[string]float64{
		accuracy: one(largest(likely) == q.Answer), accNorm: one(largest(normed) == q.Answer),
	}}, nil
}

// encode splits the tokens of a text at the start of its continuation. Whitespace before that point
// belongs to the continuation, because tokenizers usually join it with the following text.
func (r Reader) encode(text, continuation string) (before, after []int32, err error) {
	trimmed := strings.TrimRightFunc(text, isSpace)
	continuation = text[len(trimmed):] + continuation
	if trimmed == "" {
		if after, err = r.Coder.Encode([]byte(continuation)); err != nil {
			return nil, nil, err
		}
		if r.Begin == nil {
			return nil, nil, fmt.Errorf("%w: the prompt is empty, and the model's config.json has no bos_token_id or eos_token_id", ErrDocument)
		}
		return []int32{*r.Begin}, after, nil
	}
	if before, err = r.Coder.EncodeWithSpecial([]byte(trimmed)); err != nil {
		return nil, nil, err
	}
	whole, err := r.Coder.EncodeWithSpecial([]byte(trimmed + continuation))
	if err != nil {
		return nil, nil, err
	}
	return before, whole[min(len(before), len(whole)):], nil
}

func largest(values []float64) int { return slices.Index(values, slices.Max(values)) }

func one(right bool) float64 {
	if right {
		return 1
	}
	return 0
}

// Limits of written answers.
const (
	maxWritten = 2048
	until      = "Question:" // the next question, which the model generates itself
)

var chosen = regexp.MustCompile(`answer is \(?([ABCDEFGHIJ])\)?`)

func (r Reader) write(ctx context.Context, q Question) (Answer, error) {
	ids, err := r.Coder.EncodeWithSpecial([]byte(q.Context))
	if err != nil {
		return Answer{}, err
	}
	limit := r.MaxWritten
	if limit == 0 {
		limit = min(maxWritten, r.LM.MaxTokens()/2)
	}
	room := max(1, r.LM.MaxTokens()-limit)
	text, err := r.goOn(ctx, ids[max(0, len(ids)-room):], writing{limit: limit, until: until})
	if err != nil {
		return Answer{}, err
	}
	found := chosen.FindStringSubmatch(text)
	return Answer{Text: text, Scores: map[string]float64{exactMatch: one(found != nil && found[1] == q.Letter)}}, nil
}

// writing contains the settings of a generated text.
type writing struct {
	limit       int // maximum number of tokens
	temperature float64
	seed        uint64
	until       string // text that ends it; may be empty
}

// goOn returns the text that the model generates after ids, up to a text or a token that ends it.
func (r Reader) goOn(ctx context.Context, ids []int32, w writing) (string, error) {
	var written []int32
	var failed error
	err := r.LM.Write(ctx, ids, w.limit, w.temperature, w.seed, func(id int32) bool {
		if slices.Contains(r.Stop, id) {
			return false
		}
		if int(id) >= r.Coder.VocabSize() { // a row of the embedding without a token
			return true
		}
		written = append(written, id)
		if w.until == "" {
			return true
		}
		// A token has at least one byte, so the newest tokens contain w.until if it has just appeared.
		tail, err := r.Coder.DecodeSkipSpecial(written[max(0, len(written)-2*len(w.until)):])
		failed = err
		return err == nil && !strings.Contains(string(tail), w.until)
	})
	if err = errors.Join(err, failed); err != nil {
		return "", err
	}
	text, err := r.Coder.DecodeSkipSpecial(written)
	if err != nil {
		return "", err
	}
	if w.until != "" {
		text, _, _ = bytes.Cut(text, []byte(w.until))
	}
	return strings.ToValidUTF8(string(text), "\ufffd"), nil
}
