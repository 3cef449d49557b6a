package tokenizer

import (
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// bpe is byte-pair encoding: pairs of a word's symbols are merged, the pair with the lowest rank
// first, and among equal ranks the leftmost (Sennrich et al., arXiv 1508.07909).
type bpe struct {
	vocab  map[string]int32
	tokens []string // by ID; "" for an ID without a token
	size   int      // number of tokens in vocab
	merges pairTable

	products     []int32 // results of merges
	unknown      int32   // ID for characters that are not in the vocabulary, or -1
	fuseUnknown  bool
	ignoreMerges bool // a word that is a token becomes that token, independent of merges
	fallback     *[256]int32

	bytes     *[256]int32      // IDs of the single bytes, if words are bytes
	byteVocab map[string]int32 // vocab in bytes, for ignoreMerges
	instead   wordModel        // finds the tokens of words instead of merges; nil: merges
	ascii     [utf8.RuneSelf]int32
	splitMark bool // words may be cut before every wordMark that follows another character
}

// wordModel is a model without merges. It appends the IDs of a word's tokens.
type wordModel interface {
	encode(m *bpe, s *scratch, ids []int32, word []byte) []int32
}

// wordMark is SentencePiece's replacement for a space.
const wordMark = "▁"

// useBytes prepares for words of bytes. It reports whether every byte has a token.
func (m *bpe) useBytes() bool {
	if m.instead != nil {
		return false
	}
	var ids [256]int32
	for b, character := range alphabet {
		id, found := m.vocab[string(character)]
		if !found {
			return false
		}
		ids[b] = id
	}
	m.bytes = &ids
	if m.ignoreMerges {
		m.byteVocab = make(map[string]int32, len(m.vocab))
		for token, id := range m.vocab {
			if raw, ok := alphabetBytes(nil, token); ok {
				m.byteVocab[string(raw)] = id
			}
		}
	}
	return true
}

// useCharacters prepares for words of characters.
func (m *bpe) useCharacters() {
	if m.instead != nil {
		return
	}
	for c := range m.ascii {
		m.ascii[c] = -1
		if id, found := m.vocab[string(rune(c))]; found {
			m.ascii[c] = id
		}
	}
	_, m.splitMark = m.vocab[wordMark]
	m.splitMark = m.splitMark && !m.ignoreMerges // a part can be a token that the word is not
	for _, id := range m.products {
		m.splitMark = m.splitMark && !crossesMark(m.tokens[id])
	}
}

// crossesMark reports whether a wordMark follows another character in a token.
func crossesMark(token string) bool {
	other := false
	for _, r := range token {
		if string(r) == wordMark {
			if other {
				return true
			}
			continue
		}
		other = true
	}
	return false
}

// pairTable maps a pair of neighbours to its rank and the result of its merge.
type pairTable struct {
	slots []pairSlot
	seed  uint64
	shift int
}

type pairSlot struct {
	pair     uint64 // left + 1 in the upper half, right in the lower; 0: free
	rank, id int32
}

func newPairTable(count int, seed uint64) pairTable {
	size := bits.Len(uint(2*count + 15))
	return pairTable{slots: make([]pairSlot, 1<<size), seed: seed, shift: 64 - size}
}

func (t *pairTable) slot(pair uint64) int {
	high, low := bits.Mul64(pair^t.seed, 0x9e3779b97f4a7c15)
	return int((high ^ low) >> t.shift)
}

func pairOf(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(uint32(right)) }

// set sets the rank of a pair; the last call counts.
func (t *pairTable) set(left, right, rank, id int32) {
	pair := pairOf(left, right)
	for i := t.slot(pair); ; i = (i + 1) & (len(t.slots) - 1) {
		if s := &t.slots[i]; s.pair == 0 || s.pair == pair {
			*s = pairSlot{pair, rank, id}
			return
		}
	}
}

// noRank is the rank of a pair that does not merge.
const noRank = math.MaxInt32

func (t *pairTable) get(left, right int32) (rank, id int32) {
	if t.slots == nil {
		return noRank, 0
	}
	pair := pairOf(left, right)
	for i := t.slot(pair); ; i = (i + 1) & (len(t.slots) - 1) {
		switch s := &t.slots[i]; s.pair {
		case pair:
			return s.rank, s.id
		case 0:
			return noRank, 0
		}
	}
}

// symbols appends the IDs of the single bytes or characters of a word.
func (m *bpe) symbols(ids []int32, word []byte) []int32 {
	if m.bytes != nil {
		ids = slices.Grow(ids, len(word))
		for _, b := range word {
			ids = append(ids, m.bytes[b])
		}
		return ids
	}
	if len(word) > fewSymbols { // append would take more memory than a very long word needs
		ids = slices.Grow(ids, utf8.RuneCount(word))
	}
	pending := false // an unknown character that may be fused with further ones
	for at := 0; at < len(word); {
		size := 1
		id := int32(-1)
		if c := word[at]; c < utf8.RuneSelf {
			id = m.ascii[c]
		} else {
			_, size = utf8.DecodeRune(word[at:])
			if found, ok := m.vocab[string(word[at:at+size])]; ok {
				id = found
			}
		}
		character := word[at : at+size]
		at += size
		if id >= 0 {
			if pending {
				ids = append(ids, m.unknown)
				pending = false
			}
			ids = append(ids, id)
			continue
		}
		if fallen, ok := m.fallBack(ids, character); ok {
			ids = fallen
			continue
		}
		if m.unknown < 0 {
			continue // the reference implementation drops it
		}
		if pending && !m.fuseUnknown {
			ids = append(ids, m.unknown)
		}
		pending = true
	}
	if pending {
		ids = append(ids, m.unknown)
	}
	return ids
}

// fallBack appends the tokens of a character's bytes, if all of them have one.
func (m *bpe) fallBack(ids []int32, character []byte) ([]int32, bool) {
	if m.fallback == nil {
		return ids, false
	}
	start := len(ids)
	for _, b := range character {
		if m.fallback[b] < 0 {
			return ids[:start], false
		}
		ids = append(ids, m.fallback[b])
	}
	return ids, true
}

// lookUp returns the token that equals a whole word, if merges are to be ignored.
func (m *bpe) lookUp(word []byte) (id int32, found bool) {
	if !m.ignoreMerges {
		return 0, false
	}
	if m.bytes != nil {
		id, found = m.byteVocab[string(word)]
	} else {
		id, found = m.vocab[string(word)]
	}
	return id, found
}

// fewSymbols is the maximum number of symbols for which checking all pairs is faster than a heap.
const fewSymbols = 48

// encode appends the IDs of a word.
func (m *bpe) encode(s *scratch, ids []int32, word []byte) []int32 {
	if m.instead != nil {
		return m.instead.encode(m, s, ids, word)
	}
	if id, found := m.lookUp(word); found {
		return append(ids, id)
	}
	start := len(ids)
	ids = m.symbols(ids, word)
	if n := len(ids) - start; n <= fewSymbols {
		return ids[:start+m.mergeFew(ids[start:])]
	}
	return ids[:start+m.mergeMany(s, ids[start:])]
}

// mergeFew merges in place and returns the number of remaining symbols.
func (m *bpe) mergeFew(ids []int32) int {
	if len(ids) < 2 {
		return len(ids)
	}
	var rankBuffer, nextBuffer [fewSymbols]int32
	n := len(ids)
	ranks, products := rankBuffer[:n], nextBuffer[:n] // for a symbol and the next one
	for i := range n - 1 {
		ranks[i], products[i] = m.merges.get(ids[i], ids[i+1])
	}
	ranks[n-1] = noRank
	for {
		best, at := int32(noRank), 0
		for i, rank := range ranks[:n] {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == noRank {
			return n
		}
		ids[at] = products[at]
		copy(ids[at+1:n], ids[at+2:n])
		copy(ranks[at+1:n], ranks[at+2:n])
		copy(products[at+1:n], products[at+2:n])
		n--
		ranks[at] = noRank
		if at+1 < n {
			ranks[at], products[at] = m.merges.get(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1], products[at-1] = m.merges.get(ids[at-1], ids[at])
		}
	}
}
