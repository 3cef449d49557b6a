package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram is a model in which every token has a score. It selects the segmentation of a word into
// tokens with the highest sum (Kudo, arXiv 1804.10959).
type unigram struct {
	scores  []float64 // by ID
	index   prefixIndex
	missing float64 // score of a character that is not a token
	single  bool    // sums are rounded to float32
}

// kept returns a sum in the model's precision.
func (u *unigram) kept(sum float64) float64 {
	if u.single {
		return float64(float32(sum))
	}
	return sum
}

// missingPenalty is the difference between the score of the worst token and of a character that is
// not a token.
const missingPenalty = 10

// parseUnigram parses a model of the type Unigram.
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

// end is the best segmentation of a word up to an offset: its sum, and its last token.
type end struct {
	score float64
	start int32 // start of the token; -1: no segmentation yet
	id    int32
}

// segmentBytes is the length from which on a part of a word ends at the next offset that all
// segmentations share.
const segmentBytes = 1 << 12

// encode appends the IDs of the segmentation of a word with the highest sum of scores. Among equal
// sums the first one found counts, with the longest last token.
func (u *unigram) encode(m *bpe, s *scratch, ids []int32, word []byte) []int32 {
	for sum, length := 0.0, 0; len(word) > 0; word = word[length:] {
		ids, sum, length = u.segment(m, s, ids, word, sum)
	}
	return ids
}

// segment appends the IDs of the first part of a word. sum is the sum of scores before the part. It
// returns the sum after it, and its length.
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
		// at is the last offset that a segmentation has reached. So no token crosses it, and the best
		// segmentation up to it is a part of the best segmentation of the word.
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

// chosen appends the IDs of the best segmentation of a word.
func (u *unigram) chosen(m *bpe, ends []end, ids []int32, word []byte) []int32 {
	// Backwards, with consecutive unknown characters taken together.
	first := len(ids)
	missing := 0 // end of these
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

// offer offers a segmentation of a word up to an offset.
func (u *unigram) offer(e *end, score float64, start int, id int32) {
	if score = u.kept(score); e.start < 0 || score > e.score {
		*e = end{score, int32(start), id}
	}
}
