package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"
)

// Errors of Encode.
var (
	errNotUTF8     = errors.New("text is not UTF-8")
	errTextTooLong = errors.New("text is too long to encode at once")
)

// maxText is the maximum size of a text in bytes, because offsets in it are 32-bit numbers.
const maxText = 2 << 30

// Tokenizer converts text to token IDs and back as defined by its file. It is immutable and may be
// used concurrently.
type Tokenizer struct {
	file        []byte // the tokenizer.json or tokenizer.model
	model       *bpe
	normalizers normalizers
	pre         preTokenizer
	template    template
	decoders    []decoder // nil: tokens are joined with spaces

	added       []*addedToken
	beyond      int32          // number of added tokens that the vocabulary does not have
	special     map[int32]bool // added tokens' IDs: whether they are special
	hidden      map[int32]bool // ids that DecodeSkipSpecial omits
	raw, normal tokenTrie      // find added tokens before and after normalizing

	texts    [][]byte      // of the IDs, if the text of each token is independent of the previous ones
	atEnd    bool          // the text of IDs depends on all following ones
	pieces   *pieceDecoder // of a tokenizer.model
	bytewise bool          // every byte is a token, so any bytes can be encoded
	encoders sync.Pool
}

// VocabSize returns the bound of the IDs: every ID is less than VocabSize.
func (t *Tokenizer) VocabSize() int { return len(t.model.tokens) }

// JSON returns the file of the tokenizer, a tokenizer.json or a tokenizer.model. The caller must
// not change it.
func (t *Tokenizer) JSON() []byte { return t.file }

// ID returns the ID of a token, given its name in the file.
func (t *Tokenizer) ID(token string) (id int32, found bool) {
	for _, added := range t.added {
		if added.content == token {
			return added.id, true
		}
	}
	id, found = t.model.vocab[token]
	return id, found
}

// Added reports whether an ID belongs to an added token, which has precedence over all others in a
// text, and whether the file declares it as special.
func (t *Tokenizer) Added(id int32) (added, special bool) {
	special, added = t.special[id]
	return added, special
}

// FindsControl reports whether Encode recognizes control tokens in a text. With a tokenizer.model
// it does not.
func (t *Tokenizer) FindsControl() bool { return t.pieces == nil }

func (t *Tokenizer) has(id int32) bool {
	return id >= 0 && int(id) < len(t.model.tokens) && t.model.tokens[id] != ""
}

// Encode returns the IDs of a text, without IDs that a post-processor adds.
func (t *Tokenizer) Encode(text []byte) ([]int32, error) {
	return t.AppendEncode(make([]int32, 0, len(text)/3), text)
}

// EncodeWithSpecial returns the IDs of a text with the IDs that the file's post-processor adds,
// such as one for the beginning of a text.
func (t *Tokenizer) EncodeWithSpecial(text []byte) ([]int32, error) {
	ids, err := t.AppendEncode(append([]int32{}, t.template.before...), text)
	if err != nil {
		return nil, err
	}
	return append(ids, t.template.after...), nil
}

// AppendEncode appends the IDs of a text, without IDs that a post-processor adds.
func (t *Tokenizer) AppendEncode(ids []int32, text []byte) ([]int32, error) {
	if t.bytewise {
		return t.model.symbols(ids, text), nil
	}
	return t.encode(ids, text, output{})
}

// EncodeParts calls emit with the IDs that AppendEncode appends, in parts of about size IDs, and
// returns its first error. A part is valid only during the call. A word of merged pairs is never
// split between parts.
func (t *Tokenizer) EncodeParts(text []byte, size int, emit func(part []int32) error) error {
	buffer := make([]int32, 0, min(len(text), size+size/4))
	if t.bytewise {
		for part := range slices.Chunk(text, size) {
			if err := emit(t.model.symbols(buffer, part)); err != nil {
				return err
			}
		}
		return nil
	}
	rest, err := t.encode(buffer, text, output{size, emit})
	if err != nil || len(rest) == 0 {
		return err
	}
	return emit(rest)
}

// output accepts IDs in parts of size IDs. The zero value leaves all IDs to the encoder.
type output struct {
	size int
	emit func(part []int32) error
}

// encode appends the IDs of a text that out does not accept.
func (t *Tokenizer) encode(ids []int32, text []byte, out output) ([]int32, error) {
	if len(text) > maxText {
		return ids, fmt.Errorf("%w: %d bytes, the limit is %d", errTextTooLong, len(text), maxText)
	}
	if !utf8.Valid(text) {
		return ids, fmt.Errorf("%w at byte %d", errNotUTF8, validPrefix(text))
	}
	e, _ := t.encoders.Get().(*encoder)
	if e == nil {
		e = &encoder{t: t, cache: map[string]cached{}}
	}
	e.ids, e.out = ids, out
	err := e.encode(text)
	ids = e.ids
	e.ids, e.out = nil, output{}
	t.encoders.Put(e)
	return ids, err
}

// validPrefix returns the length of the valid UTF-8 at the start of a text.
func validPrefix(text []byte) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// encoder encodes one text after the other.
type encoder struct {
	t       *Tokenizer
	ids     []int32
	out     output
	scratch scratch

	cache map[string]cached // by word
	store []int32           // IDs of cached words
}

// cached is the position of a word's IDs.
type cached struct{ start, end int32 }

// Limits of an encoder's cache.
const (
	maxCached     = 1 << 16 // words
	maxCachedWord = 64      // bytes
)

func (e *encoder) encode(text []byte) error {
	return e.t.raw.each(text, func(start, end int) error {
		part, origin, err := e.normalize(text[start:end], start == 0)
		if err != nil {
			return err
		}
		if len(part) > math.MaxInt32 {
			return fmt.Errorf("%w: %d bytes after normalization", errTextTooLong, len(part))
		}
		whole := piece{part, origin}
		return e.t.normal.each(part, func(start, end int) error {
			return e.next(0, whole.part(start, end))
		}, e.add)
	}, e.add)
}

// normalize normalizes a part of a text. origin is the number of bytes at the start of the result
// that come from the first character of the text (piece.origin).
func (e *encoder) normalize(part []byte, first bool) (normalized []byte, origin int, err error) {
	if !first || !e.t.pre.first {
		normalized, err = e.t.normalizers.normalize(part)
		return normalized, 0, err
	}
	_, size := utf8.DecodeRune(part)
	return e.t.normalizers.follow(part, size)
}

func (e *encoder) add(token *addedToken) error {
	e.ids = append(e.ids, token.id)
	return e.flush()
}

// flush passes the IDs to the output if there are enough.
func (e *encoder) flush() error {
	if e.out.emit == nil || len(e.ids) < e.out.size {
		return nil
	}
	err := e.out.emit(e.ids)
	e.ids = e.ids[:0]
	return err
}

// next passes a piece to a stage, or to the model after the last.
func (e *encoder) next(at int, p piece) error {
	if at < len(e.t.pre.stages) {
		return e.t.pre.stages[at].split(e, at, p)
	}
	if e.t.model.splitMark {
		return e.marked(p.text)
	}
	return e.word(p.text)
}

// pass passes a part of a piece to the stage after the given one.
func (e *encoder) pass(at int, p piece, start, end int) error {
	return e.next(at+1, p.part(start, end))
}

// marked cuts a word before each wordMark that follows another character, because merges do not
// cross it.
func (e *encoder) marked(text []byte) error {
	for len(text) > 0 {
		from := 0
		for bytes.HasPrefix(text[from:], []byte(wordMark)) {
			from += len(wordMark)
		}
		end := bytes.Index(text[from:], []byte(wordMark))
		if end < 0 {
			end = len(text)
		} else {
			end += from
		}
		if err := e.word(text[:end]); err != nil {
			return err
		}
		text = text[end:]
	}
	return nil
}

// word appends the IDs of a word.
func (e *encoder) word(word []byte) error {
	if len(word) > maxCachedWord {
		return e.long(word)
	}
	if at, found := e.cache[string(word)]; found {
		e.ids = append(e.ids, e.store[at.start:at.end]...)
		return e.flush()
	}
	before := len(e.ids)
	e.ids = e.t.model.encode(&e.scratch, e.ids, word)
	if len(e.cache) == maxCached {
		clear(e.cache)
		e.store = e.store[:0]
	}
	start := len(e.store)
	e.store = append(e.store, e.ids[before:]...)
	e.cache[string(word)] = cached{int32(start), int32(len(e.store))}
	return e.flush()
}

// long appends the IDs of a word that is not cached. For some models a whole text is a word.
func (e *encoder) long(word []byte) error {
	m := e.t.model
	u, scored := m.instead.(*unigram)
	if !scored {
		e.ids = m.encode(&e.scratch, e.ids, word)
		return e.flush()
	}
	for sum, length := 0.0, 0; len(word) > 0; word = word[length:] {
		e.ids, sum, length = u.segment(m, &e.scratch, e.ids, word, sum)
		if err := e.flush(); err != nil {
			return err
		}
	}
	return nil
}

// Decode returns the text of ids, including special tokens. With a byte vocabulary the text may be
// invalid UTF-8, because a model may generate any IDs. An ID without a token is an error.
func (t *Tokenizer) Decode(ids []int32) ([]byte, error) {
	return t.decodeIDs(ids, true)
}

// DecodeSkipSpecial is Decode without special tokens. As in the reference implementation, a token
// counts as special here if its text, once normalized, equals the content of a special token. With
// a normalizer that converts to lower case, the text of a normalized special token "EOS" therefore
// stays.
func (t *Tokenizer) DecodeSkipSpecial(ids []int32) ([]byte, error) {
	return t.decodeIDs(ids, false)
}

func (t *Tokenizer) decodeIDs(ids []int32, special bool) ([]byte, error) {
	var tokens []string
	var text []byte
	for i, id := range ids {
		switch {
		case !t.has(id):
			return nil, fmt.Errorf("decode token %d: id %d is out of range, the vocabulary has %d tokens", i, id, t.VocabSize())
		case !special && t.hidden[id]:
		case t.texts != nil:
			text = append(text, t.texts[id]...)
		default:
			tokens = append(tokens, t.model.tokens[id])
		}
	}
	if t.texts != nil {
		return text, nil
	}
	return t.decode(tokens)
}
