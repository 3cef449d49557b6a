package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram is a model in which every token has a score: of all ways to write a word as tokens
// the one of the highest sum is taken (Kudo, arXiv 1804.10959).
type unigram struct {
	scores  []float64 // by id
	index   prefixIndex
	missing float64 // score of a character that is no token
	single  bool    // sums are kept as float32
}

// kept returns a sum as it is kept.
func (u *unigram) kept(sum float64) float64 {
	if u.single {
		return float64(float32(sum))
	}
	return sum
}

// missingPenalty is how much a character that is no token is worse than the worst token.
const missingPenalty = 10

// parseUnigram reads model, of the type Unigram.
func (t *Tokenizer) parseUnigram(o *object) error {
	o.want("type", `"Unigram"`)
	m := &bpe{vocab: map[string]int32{}}
	fallback := o.flag("byte_fallback", false)
	unknown := o.count("unk_id", maxID)
	pieces := o.list("vocab")
	if err := o.done(); err != nil {
		return err
	}
	if len(pieces) > maxVocab {
		return fmt.Errorf("%w: %s has more than %d tokens", errUnsupported, o.path("vocab"), maxVocab)
	}
	if unknown >= len(pieces) {
		return fmt.Errorf("%w: %s is %d, but the vocabulary has %d tokens", errUnsupported, o.path("unk_id"), unknown, len(pieces))
	}
	u := &unigram{missing: math.Inf(1)}
	for i, raw := range pieces {
		var token string
		var number json.RawMessage
		score, ok := 0.0, twoValues(raw, &token, &number)
		if ok {
			score, ok = parseScore(number)
		}
		if !ok {
			return fmt.Errorf("%w: %s[%d] is %s, want a token and its score", errUnsupported, o.path("vocab"), i, shorten(raw))
		}
		if _, twice := m.vocab[token]; twice {
			return fmt.Errorf("%w: %s has %.80q twice", errUnsupported, o.path("vocab"), token)
		}
		if token == "" || len(token) > maxTokenBytes {
			return fmt.Errorf("%w: %s[%d] is a token of %d bytes, want 1 to %d", errUnsupported, o.path("vocab"), i, len(token), maxTokenBytes)
		}
		m.vocab[token] = int32(i)
		m.tokens = append(m.tokens, token)
		u.scores = append(u.scores, score)
		u.missing = min(u.missing, score)
	}
	u.missing -= missingPenalty
	u.index = newPrefixIndex(m.vocab)
	m.size, m.unknown, m.instead = len(pieces), int32(unknown), u
	if fallback {
		m.useFallback()
	}
	t.model = m
	return nil
}

// end is the best way to write a word up to a place: its sum, and its last token.
type end struct {
	score float64
	start int32 // of the token; -1: there is no way yet
	id    int32
}

// segmentBytes is the length from which on a part of a word is complete at the next place that all ways pass.
const segmentBytes = 1 << 12

// encode appends the ids of the tokens of a word whose scores have the highest sum. Of equal sums
// the first found counts, that of the longest last token.
func (u *unigram) encode(m *bpe, s *scratch, ids []int32, word []byte) []int32 {
	for sum, length := 0.0, 0; len(word) > 0; word = word[length:] {
		ids, sum, length = u.segment(m, s, ids, word, sum)
	}
	return ids
}

// segment appends the ids of the first part of a word. sum is the sum of scores before the part. It returns the sum after it, and
// its length.
func (u *unigram) segment(m *bpe, s *scratch, ids []int32, word []byte, sum float64) (all []int32, after float64, length int) {
	s.ends = append(s.ends[:0], end{score: sum, start: -1})
	to := func(place int) *end {
		for len(s.ends) <= place {
			s.ends = append(s.ends, end{start: -1})
		}
		return &s.ends[place]
	}
	at := 0
	for at < len(word) {
		// No token crosses a place that is the last one reached, so the best way to it is a part of the best way.
		if at >= segmentBytes && len(s.ends) == at+1 && s.ends[at].id != m.unknown {
			break
		}
		_, size := utf8.DecodeRune(word[at:])
		here, alone := s.ends[at].score, false
		u.index.each(word[at:], func(id int32, length int) {
			u.offer(to(at+length), here+u.scores[id], at, id)
			alone = alone || length == size
		})
		if !alone {
			u.offer(to(at+size), u.kept(here+u.missing), at, m.unknown)
		}
		at += size
	}
	return u.chosen(m, s.ends, ids, word[:at]), s.ends[at].score, at
}

// chosen appends the ids of the best way to write a word.
func (u *unigram) chosen(m *bpe, ends []end, ids []int32, word []byte) []int32 {
	// Backwards; what is missing is taken together.
	first := len(ids)
	missing := 0 // the end of what is
	flush := func(start int) {
		if missing == 0 {
			return
		}
		from := len(ids)
		if id, found := m.vocab[string(word[start:missing])]; found && !u.single {
			ids = append(ids, id) // the text spells the unknown token
		} else if fallen, ok := m.fallBack(ids, word[start:missing]); ok {
			ids = fallen
			slices.Reverse(ids[from:])
		} else {
			ids = append(ids, m.unknown)
		}
		missing = 0
	}
	for at := len(word); at > 0; {
		last := ends[at]
		if last.id == m.unknown {
			missing = max(missing, at)
		} else {
			flush(at)
			ids = append(ids, last.id)
		}
		at = int(last.start)
	}
	flush(0)
	slices.Reverse(ids[first:])
	return ids
}

// offer is a way to write a word up to a place.
func (u *unigram) offer(e *end, score float64, start int, id int32) {
	if score = u.kept(score); e.start < 0 || score > e.score {
		*e = end{score, int32(start), id}
	}
}
