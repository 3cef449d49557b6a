package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// wordPiece is a model that repeatedly takes the longest token from the left. Tokens inside a word
// have a prefix. If a word cannot be segmented this way, the whole word is unknown (Schuster and
// Nakajima, Japanese and Korean voice search, 2012).
type wordPiece struct {
	first, later prefixIndex // tokens at the start of a word, and inside it, without the prefix
	longest      int         // maximum number of characters of a word; longer words are unknown
}

// parseWordPiece parses a model of the type WordPiece.
func (t *Tokenizer) parseWordPiece(o *object) error {
	o.want("type", `"WordPiece"`)
	unknown := o.text("unk_token")
	prefix := o.text("continuing_subword_prefix")
	w := &wordPiece{longest: o.count("max_input_chars_per_word", math.MaxInt32)}
	vocab, _ := o.need("vocab")
	if err := o.done(); err != nil {
		return err
	}
	m := &bpe{instead: w}
	if err := m.parseVocab(o.path("vocab"), vocab); err != nil {
		return err
	}
	id, found := m.vocab[unknown]
	if !found {
		return fmt.Errorf("%w: %s is %.80q, which is not in the vocabulary", errUnsupported, o.path("unk_token"), unknown)
	}
	m.unknown = id
	later := map[string]int32{}
	for token, id := range m.vocab {
		if rest, found := strings.CutPrefix(token, prefix); found && rest != "" {
			later[rest] = id
		}
	}
	w.first, w.later = newPrefixIndex(m.vocab), newPrefixIndex(later)
	t.model = m
	return nil
}

func (w *wordPiece) encode(m *bpe, _ *scratch, ids []int32, word []byte) []int32 {
	start := len(ids)
	if len(word) > w.longest && utf8.RuneCount(word) > w.longest {
		return append(ids, m.unknown)
	}
	index := &w.first
	for len(word) > 0 {
		id, length := int32(0), 0
		index.each(word, func(found int32, bytes int) { id, length = found, bytes })
		if length == 0 {
			return append(ids[:start], m.unknown)
		}
		ids, word, index = append(ids, id), word[length:], &w.later
	}
	return ids
}

// wordPieceDecoder adds spaces between words and joins the tokens of a word.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

// tidier undoes the splitting of English text, one pair after the other.
var tidier = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (d wordPieceDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		if i > 0 {
			rest, joins := strings.CutPrefix(token, d.prefix)
			if token = rest; !joins {
				token = " " + token
			}
		}
		if d.cleanup {
			for _, pair := range tidier {
				token = strings.ReplaceAll(token, pair[0], pair[1])
			}
		}
		out[i] = token
	}
	return out, nil
}
