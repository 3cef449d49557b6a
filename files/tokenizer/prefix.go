package tokenizer

import (
	"cmp"
	"slices"
	"sort"
)

// prefixIndex finds the tokens that are prefixes of a text.
type prefixIndex struct {
	sorted []indexed // by their texts
	firsts [257]int  // index in sorted of the first text with each first byte
}

type indexed struct {
	text string
	id   int32
}

// newPrefixIndex returns an index of texts, which must not be empty.
func newPrefixIndex(ids map[string]int32) prefixIndex {
	x := prefixIndex{sorted: make([]indexed, 0, len(ids))}
	for text, id := range ids {
		x.sorted = append(x.sorted, indexed{text, id})
	}
	slices.SortFunc(x.sorted, func(a, b indexed) int { return cmp.Compare(a.text, b.text) })
	for b := range x.firsts {
		x.firsts[b] = sort.Search(len(x.sorted), func(i int) bool { return int(x.sorted[i].text[0]) >= b })
	}
	return x
}

// each calls yield for every token that is a prefix of a nonempty text, with its length, the
// shortest first.
func (p *prefixIndex) each(text []byte, yield func(id int32, length int)) {
	low, high := p.firsts[text[0]], p.firsts[int(text[0])+1]
	for length := 1; low < high; length++ {
		if found := p.sorted[low]; len(found.text) == length {
			yield(found.id, length)
			low++
		}
		if length == len(text) {
			return
		}
		// All entries in between have this prefix, and are longer.
		b := text[length]
		low += sort.Search(high-low, func(i int) bool { return p.sorted[low+i].text[length] >= b })
		high = low + sort.Search(high-low, func(i int) bool { return p.sorted[low+i].text[length] > b })
	}
}
