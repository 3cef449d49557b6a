package tokenizer

import (
	"cmp"
	"slices"
	"sort"
)

// prefixIndex finds the tokens that a text begins with.
type prefixIndex struct {
	sorted []indexed // by their texts
	firsts [257]int  // of sorted: where texts begin that begin with a byte
}

type indexed struct {
	text string
	id   int32
}

// newPrefixIndex returns an index of texts, none of which is empty.
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

// each calls yield with every token that a text of at least a byte begins with, and its length,
// the shortest first.
func (x *prefixIndex) each(text []byte, yield func(id int32, length int)) {
	low, high := x.firsts[text[0]], x.firsts[int(text[0])+1]
	for length := 1; low < high; length++ {
		if found := x.sorted[low]; len(found.text) == length {
			yield(found.id, length)
			low++
		}
		if length == len(text) {
			return
		}
		// Those between have this beginning, and are longer.
		b := text[length]
		low += sort.Search(high-low, func(i int) bool { return x.sorted[low+i].text[length] >= b })
		high = low + sort.Search(high-low, func(i int) bool { return x.sorted[low+i].text[length] > b })
	}
}
