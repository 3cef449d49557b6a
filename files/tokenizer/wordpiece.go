package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// wordPiece is a model that takes the longest token again and again, from the left; tokens
// that do not begin a word have a prefix. A word that cannot be written so is unknown as a whole
// (Schuster and Nakajima, Japanese and Korean voice search, 2012).
type wordPiece struct {
	first, later prefixIndex // what a word begins with, and what it goes on with, without the prefix
	longest      int         // characters of a word; a longer one is unknown
}

// parseWordPiece reads model, of the type WordPiece.
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

// wordPieceDecoder puts blanks between words and joins what belongs to one.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

// tidier takes away what splitting English text put in, one pair after the other.
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
