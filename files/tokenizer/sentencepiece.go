package tokenizer

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/filestart"
)

// ParseSentencePiece parses a tokenizer.model, the file of SentencePiece, and keeps raw. It
// supports models of the types unigram and BPE. The IDs equal the IDs of the library, which adds
// none before or after a text.
func ParseSentencePiece(raw []byte) (*Tokenizer, error) {
	if len(raw) > maxFileSize {
		return nil, fmt.Errorf("the file exceeds %d bytes", maxFileSize)
	}
	if err := filestart.Pointer(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	p, err := parsePieceFile(raw)
	if err == nil && len(p.pieces) == 0 {
		err = fmt.Errorf("%w: %w", errUnsupported, errNoPieces)
	}
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{file: raw, model: &bpe{vocab: map[string]int32{}, fuseUnknown: true}, special: map[int32]bool{}}
	d := pieceDecoder{kinds: map[string]uint64{}, unknown: p.unkSurface, prefix: p.prefix, trim: p.trim}
	var defined tokenTrie
	for i, piece := range p.pieces {
		id := int32(i)
		t.model.tokens = append(t.model.tokens, piece.text)
		switch piece.kind {
		case pieceNormal:
			t.model.vocab[piece.text] = id
			continue
		case pieceUnknown:
			t.model.unknown = id
		case pieceControl, pieceDefined:
			token := &addedToken{id: id, content: piece.text, special: piece.kind == pieceControl}
			t.added = append(t.added, token)
			t.special[id] = token.special
			if piece.kind == pieceDefined {
				defined.add([]byte(piece.text), token)
			}
		}
		d.kinds[piece.text] = piece.kind
	}
	t.model.size, t.hidden = len(p.pieces), t.special
	if p.fallback {
		t.model.useFallbackOf(p.pieces)
	}
	t.normalizers = normalizers{pieceNormalizer{p.rules, defined, p.prefix, p.trim}}
	t.decoders = []decoder{d}
	t.pieces = &d
	if p.modelType == modelUnigram {
		p.useScores(t.model)
		return t, nil
	}
	t.normal = defined
	return t, p.useMerges(t.model)
}

// useFallbackOf finds the pieces of bytes.
func (m *bpe) useFallbackOf(pieces []sentencePiece) {
	m.fallback = new([256]int32)
	for i, piece := range pieces {
		if piece.kind == pieceByte {
			b, _ := fallbackByte(piece.text)
			m.fallback[b] = int32(i)
		}
	}
}

// definedScore is multiplied by the length in bytes minus one to get the score of a piece that the
// trainer of the model defined.
const definedScore = 0.1

// useScores creates a model of the type unigram. SentencePiece computes with float32.
func (p *pieceFile) useScores(m *bpe) {
	u := &unigram{single: true, scores: make([]float64, len(p.pieces))}
	minimum := float32(math.MaxFloat32)
	for _, piece := range p.pieces {
		if piece.kind == pieceNormal {
			minimum = min(minimum, piece.score)
		}
	}
	found := map[string]int32{}
	for i, piece := range p.pieces {
		switch piece.kind {
		case pieceNormal:
			u.scores[i] = float64(piece.score)
		case pieceDefined:
			u.scores[i] = float64(float32(definedScore * float64(len(piece.text)-1)))
		default:
			continue
		}
		found[piece.text] = int32(i)
	}
	u.missing = float64(minimum - missingPenalty)
	u.index = newPrefixIndex(found)
	m.instead = u
}

// maxMergedBytes is the maximum size of a merged piece in bytes.
const maxMergedBytes = 512

// useMerges creates a model of the type BPE, in which two neighbours merge if their joined text is
// a piece, and the piece with the highest score first.
func (p *pieceFile) useMerges(m *bpe) error {
	type merge struct{ left, right, id int32 }
	var merges []merge
	index := newPrefixIndex(m.vocab)
	for i, piece := range p.pieces {
		if piece.kind != pieceNormal || utf8.RuneCountInString(piece.text) < 2 {
			continue
		}
		if len(piece.text) > maxMergedBytes {
			return fmt.Errorf("%w: pieces[%d].piece has %d bytes, the limit for a merged piece is %d", errUnsupported, i, len(piece.text), maxMergedBytes)
		}
		for _, r := range piece.text {
			if _, found := m.vocab[string(r)]; !found {
				return fmt.Errorf("%w: pieces[%d].piece %.80q contains the character %q, which is not a piece", errUnsupported, i, piece.text, r)
			}
		}
		index.each([]byte(piece.text), func(left int32, length int) {
			if right, found := m.vocab[piece.text[length:]]; found {
				merges = append(merges, merge{left, right, int32(i)})
			}
		})
		if len(merges) > maxMerges {
			return fmt.Errorf("%w: more than %d possible merges of pieces", errUnsupported, maxMerges)
		}
	}
	slices.SortStableFunc(merges, func(a, b merge) int {
		x, y := p.pieces[a.id].score, p.pieces[b.id].score
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	if len(merges) > 0 {
		m.merges = newPairTable(len(merges), new(maphash.Hash).Sum64())
	}
	rank := int32(0)
	for i, x := range merges {
		if i > 0 && p.pieces[x.id].score != p.pieces[merges[i-1].id].score {
			rank++ // among equal scores the leftmost counts
		}
		m.merges.set(x.left, x.right, rank, x.id)
		m.products = append(m.products, x.id)
	}
	m.useCharacters()
	return nil
}

// pieceNormalizer does SentencePiece's normalization before the search for pieces.
type pieceNormalizer struct {
	rules        *charsmap
	defined      tokenTrie // texts that stay unchanged
	prefix, trim bool
}

// maxRules is the maximum number of rules that are checked for the start of a text.
const maxRules = 32

// errDeepRule means that rules would take too long to apply.
var errDeepRule = fmt.Errorf("a normalizer rule has more than %d bytes of text", maxRuleBytes)

// next returns the replacement of the start of a text, and the length of that start.
func (n pieceNormalizer) next(text []byte) (with []byte, length int, err error) {
	if length := n.defined.prefix(text); length > 0 {
		return text[:length], length, nil
	}
	if n.rules != nil {
		var longest uint32
		count := 0
		deeper := n.rules.find(text, func(at uint32, size int) bool {
			longest, length = at, size
			count++
			return count < maxRules
		})
		switch {
		case deeper:
			return nil, 0, errDeepRule
		case length > 0:
			return n.rules.text(longest), length, nil
		}
	}
	_, length = utf8.DecodeRune(text)
	return text[:length], length, nil
}

func (n pieceNormalizer) normalize(text []byte) ([]byte, error) {
	limit := maxGrowth * (len(text) + 1024)
	for n.trim && len(text) > 0 {
		with, length, err := n.next(text)
		if err != nil {
			return nil, err
		}
		if string(with) != " " {
			break
		}
		text = text[length:]
	}
	if len(text) == 0 {
		return nil, nil
	}
	out := make([]byte, 0, len(text)+len(text)/2)
	if n.prefix {
		out = append(out, wordMark...)
	}
	for afterBlank := n.trim; len(text) > 0; {
		with, length, err := n.next(text)
		if err != nil {
			return nil, err
		}
		text = text[length:]
		if afterBlank {
			with = bytes.TrimLeft(with, " ")
		}
		for _, b := range with {
			if b == ' ' {
				out = append(out, wordMark...)
			} else {
				out = append(out, b)
			}
		}
		if len(with) > 0 {
			afterBlank = n.trim && with[len(with)-1] == ' '
		}
		if len(out) > limit {
			return nil, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
	}
	for n.trim && bytes.HasSuffix(out, []byte(wordMark)) {
		out = out[:len(out)-len(wordMark)]
	}
	return out, nil
}

// pieceDecoder converts pieces to text as SentencePiece does.
type pieceDecoder struct {
	kinds        map[string]uint64 // of pieces that are not normal
	unknown      string
	prefix, trim bool
}

func (d pieceDecoder) decode(tokens []string) ([]string, error) {
	text := pieceText{pieceDecoder: d}
	for _, token := range tokens {
		text.add(token)
	}
	text.end()
	return []string{string(text.out)}, nil
}

// pieceText is a text that is assembled from pieces.
type pieceText struct {
	pieceDecoder
	out     []byte // final text
	raw     []byte // bytes that may be the start of a character
	inside  bool   // following spaces are kept
	dropped bool   // a space was dropped with the previous piece
	written bool   // some text has been written
}

// add takes the next piece.
func (p *pieceText) add(token string) {
	kind := p.kinds[token]
	if kind == pieceByte {
		b, _ := fallbackByte(token)
		p.raw = append(p.raw, b)
		for utf8.FullRune(p.raw) {
			p.character()
		}
		return
	}
	p.end()
	p.inside = p.inside || p.dropped || p.written
	p.dropped = false
	switch {
	case kind == pieceControl:
		return
	case kind == pieceUnknown:
		p.write(p.unknown)
		return
	case !p.inside && (p.prefix || p.trim):
		token, p.dropped = strings.CutPrefix(token, wordMark)
		p.dropped = p.dropped && !p.trim
	}
	p.write(strings.ReplaceAll(token, wordMark, " "))
}

func (p *pieceText) write(text string) {
	p.out = append(p.out, text...)
	p.written = p.written || len(text) > 0
}

// character writes the first character of raw, or U+FFFD for an invalid byte.
func (p *pieceText) character() {
	r, size := utf8.DecodeRune(p.raw)
	p.write(string(r))
	p.raw = p.raw[:copy(p.raw, p.raw[size:])]
}

// end writes the remaining bytes as complete.
func (p *pieceText) end() {
	for len(p.raw) > 0 {
		p.character()
	}
}

// take returns final text that was not returned before.
func (p *pieceText) take() []byte {
	text := p.out
	p.out = nil
	return text
}
