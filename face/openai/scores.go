package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// scores collects the log-probabilities of the tokens of a text, from the model's logits without
// temperature.
type scores struct {
	coder   *tokenizer.Tokenizer
	top     int       // number of alternatives to show
	last    []int32   // the token before, or none
	logits  []float32 // of the next token
	offset  int       // characters of the text so far
	pending []scored  // tokens that were not shown yet
}

// scored is a token of the text.
type scored struct {
	ranked
	top    []ranked // the most likely tokens
	offset int      // characters before it
}

// ranked is a token with its log-probability.
type ranked struct {
	text    []byte
	logprob float64
}

// newScores returns the scores of a completion of a prompt.
func newScores(coder *tokenizer.Tokenizer, top int, prompt []int32) *scores {
	return &scores{coder: coder, top: top, last: slices.Clone(prompt[len(prompt)-1:])}
}

// observe stores the logits of the next token.
func (s *scores) observe(logits []float32) { s.logits = append(s.logits[:0], logits...) }

// add adds the chosen token, and the text that appears with it.
func (s *scores) add(id int32, piece string) error {
	if int(id) >= len(s.logits) {
		return fmt.Errorf("token %d is out of range: the model has %d logits", id, len(s.logits))
	}
	largest, sum := float64(slices.Max(s.logits)), 0.0
	for _, logit := range s.logits {
		sum += math.Exp(float64(logit) - largest)
	}
	total := largest + math.Log(sum)
	rank := func(id int32) (ranked, error) {
		text, err := s.textOf(id)
		return ranked{text, float64(s.logits[id]) - total}, err
	}
	one, err := rank(id)
	if err != nil {
		return err
	}
	token := scored{ranked: one, offset: s.offset}
	for _, id := range s.best() {
		if one, err := rank(id); err == nil { // some ids may have no token
			token.top = append(token.top, one)
		}
	}
	s.pending = append(s.pending, token)
	s.last = []int32{id}
	s.offset += utf8.RuneCountInString(piece)
	return nil
}

// best returns the most likely ids. Of equally likely ids, the lower comes first.
func (s *scores) best() []int32 {
	var best []int32
	if s.top == 0 {
		return nil
	}
	for i := range s.logits[:min(len(s.logits), s.coder.VocabSize())] {
		id := int32(i)
		at, _ := slices.BinarySearchFunc(best, id, func(a, b int32) int { return cmp.Or(cmp.Compare(s.logits[b], s.logits[a]), cmp.Compare(a, b)) })
		if at < s.top {
			best = slices.Insert(best, at, id)
			best = best[:min(len(best), s.top)]
		}
	}
	return best
}

// textOf returns the bytes that a token adds after the previous token. It decodes the two tokens
// together, because some decoders drop a space at the start of a text.
func (s *scores) textOf(id int32) ([]byte, error) {
	before, err := s.coder.Decode(s.last)
	if err == nil {
		var both []byte
		both, err = s.coder.Decode([]int32{s.last[0], id})
		if text, follows := bytes.CutPrefix(both, before); follows && err == nil {
			return text, nil
		}
	}
	return s.coder.Decode([]int32{id})
}

// shown returns the tokens that were not shown before, in the form of chats or of texts. It returns
// nil if there are none.
func (s *scores) shown(inChat bool) any {
	if len(s.pending) == 0 {
		return nil
	}
	tokens := s.pending
	s.pending = nil
	if inChat {
		return chatScores(tokens)
	}
	return textScores(tokens)
}

func chatScores(tokens []scored) any {
	object := func(r ranked) map[string]any {
		numbers := make([]int, len(r.text))
		for i, b := range r.text {
			numbers[i] = int(b)
		}
		return map[string]any{"token": r.name(), "bytes": numbers, "logprob": r.logprob}
	}
	content := make([]any, len(tokens))
	for i, token := range tokens {
		top := make([]any, len(token.top))
		for j, one := range token.top {
			top[j] = object(one)
		}
		one := object(token.ranked)
		one["top_logprobs"] = top
		content[i] = one
	}
	return map[string]any{"content": content, "refusal": nil}
}

func textScores(tokens []scored) any {
	names, logprobs, offsets, tops := []string{}, []float64{}, []int{}, []map[string]float64{}
	for _, token := range tokens {
		names, logprobs, offsets = append(names, token.name()), append(logprobs, token.logprob), append(offsets, token.offset)
		top := map[string]float64{}
		for _, one := range append(token.top, token.ranked) {
			if likelier, there := top[one.name()]; !there || one.logprob > likelier {
				top[one.name()] = one.logprob
			}
		}
		tops = append(tops, top)
	}
	return map[string]any{"tokens": names, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}
}

// name returns the text of a token, or its bytes if they are not valid characters.
func (r ranked) name() string {
	if utf8.Valid(r.text) {
		return string(r.text)
	}
	var name strings.Builder
	name.WriteString("bytes:")
	for _, b := range r.text {
		fmt.Fprintf(&name, `\x%02x`, b)
	}
	return name.String()
}
