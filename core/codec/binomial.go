package codec

import (
	"math/bits"
	"sync"
)

// maxTable is the maximum ChunkSize·K for sets of indices that are coded by rank. The table of
// binomials has this many multi-word entries, which take megabytes at the maximum. The indices of
// larger chunks are written one by one.
const maxTable = 1 << 17

// number is a little-endian integer of 64-bit words.
type number []uint64

func (a number) less(b number) bool {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// add adds b, which must not have more words than a, and returns the carry out of the last word.
func (a number) add(b number) uint64 {
	var carry uint64
	for i := range a {
		var word uint64
		if i < len(b) {
			word = b[i]
		}
		a[i], carry = bits.Add64(a[i], word, carry)
	}
	return carry
}

// sub subtracts b, which must not be larger than a. The words of a that b does not have take the
// borrow.
func (a number) sub(b number) {
	var borrow uint64
	for i := range a {
		var word uint64
		if i < len(b) {
			word = b[i]
		}
		a[i], borrow = bits.Sub64(a[i], word, borrow)
	}
}

// rankWords is enough for most ranks without an allocation.
const rankWords = 16

// resized returns a zero number with the given number of words, reusing a's memory if possible.
func (a number) resized(words int) number {
	if words <= len(a) {
		return a[:words]
	}
	return make(number, words)
}

// shifted returns a >> n, which must fit into a word.
func (a number) shifted(n int) uint64 {
	word := n / 64
	v := a[word] >> (n % 64)
	if word+1 < len(a) {
		v |= a[word+1] << (64 - n%64)
	}
	return v
}

func (a number) bitLen() int {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != 0 {
			return i*64 + bits.Len64(a[i])
		}
	}
	return 0
}

// binomials holds C(m, j) for 0 ≤ m ≤ size and 0 ≤ j ≤ k.
type binomials struct {
	words  []int      // number of words of the entries of column j
	column [][]uint64 // column[j][m·words[j]:] is C(m, j)
	top    [][]uint64 // top[j][m] is C(m, j) >> shift[j]
	shift  []int      // shifts the column's largest entry into one word
	// widths[j] is the number of bits of C(size, j)−1, which the rank of a set of j elements takes.
	widths []int
}

type tableKey struct{ size, k int }

var tables sync.Map // tableKey → func() *binomials

// binomialTable returns the table for sets of at most k of size elements, where size·k ≤ maxTable.
// Tables are never freed. There is one for each kind of chunk in a model.
func binomialTable(size, k int) *binomials {
	key := tableKey{size, k}
	table, ok := tables.Load(key)
	if !ok {
		table, _ = tables.LoadOrStore(key, sync.OnceValue(func() *binomials { return newBinomials(size, k) }))
	}
	return table.(func() *binomials)()
}

// newBinomials computes Pascal's triangle, C(m, j) = C(m−1, j) + C(m−1, j−1), column by column. A
// column starts with as many words as the previous one and is widened when it overflows.
func newBinomials(size, k int) *binomials {
	b := &binomials{}
	previous := make([]uint64, size+1)
	for m := range previous {
		previous[m] = 1
	}
	words := 1
	b.append(previous, words, size)
	for range k {
		column, ok := nextColumn(previous, words, words, size)
		if !ok {
			column, _ = nextColumn(previous, words, words+1, size)
			words++
		}
		previous = column
		b.append(column, words, size)
	}
	return b
}

func (b *binomials) append(column []uint64, words, size int) {
	largest := append(number(nil), column[size*words:]...)
	shift := max(0, largest.bitLen()-64)
	top := column
	if words > 1 {
		top = make([]uint64, size+1)
		for m := range top {
			top[m] = number(column[m*words:][:words]).shifted(shift)
		}
	}
	b.top, b.shift = append(b.top, top), append(b.shift, shift)
	largest.sub(number{1}) // C(size, j) is at least 1
	b.widths = append(b.widths, largest.bitLen())
	b.words = append(b.words, words)
	b.column = append(b.column, column)
}

// nextColumn computes column j from column j−1 with entries of the given number of words, and
// reports whether they were sufficient.
func nextColumn(previous []uint64, previousWords, words, size int) ([]uint64, bool) {
	column := make([]uint64, (size+1)*words)
	for m := 1; m <= size; m++ {
		entry := number(column[m*words:][:words])
		copy(entry, column[(m-1)*words:][:words])
		if entry.add(previous[(m-1)*previousWords:][:previousWords]) != 0 {
			return nil, false
		}
	}
	return column, true
}

// at returns C(m, j).
func (b *binomials) at(m, j int) number {
	words := b.words[j]
	return number(b.column[j][m*words:][:words])
}

// rank sets r to the rank of a set, Σ C(indices[i], i+1): the number of sets of the same size that
// precede it in colexicographic order. indices must ascend.
func (b *binomials) rank(indices []uint16, r number) {
	clear(r)
	for i, index := range indices {
		r.add(b.at(int(index), i+1))
	}
}

// unrank is the inverse of rank for a set of len(indices) out of size elements. It overwrites r, and
// reports whether r was a valid rank.
func (b *binomials) unrank(r number, size int, indices []uint16) bool {
	if !r.less(b.at(size, len(indices))) {
		return false
	}
	above := size
	for j := len(indices); j > 0; j-- {
		r = r[:b.words[j]] // the rest is less than C(above, j)
		low := b.last(r, j, above)
		r.sub(b.at(low, j))
		indices[j-1] = uint16(low)
		above = low
	}
	return true
}

// coarse is the minimum r >> shift[j] for which the shortened entries in top distinguish neighbours
// well enough.
const coarse = 1 << 20

// last returns the largest m < above with C(m, j) ≤ r, given that C(above, j) > r. It first searches
// the shortened entries in top, without branches that depend on r, and then corrects the result.
func (b *binomials) last(r number, j, above int) int {
	low := j - 1 // C(j−1, j) = 0
	if key := r.shifted(b.shift[j]); len(r) == 1 || key >= coarse {
		top := b.top[j]
		for n := above - low; n > 1; {
			half := n / 2
			if top[low+half] <= key {
				low += half
			}
			n -= half
		}
		for r.less(b.at(low, j)) {
			low--
		}
		return low
	}
	for n := above - low; n > 1; {
		half := n / 2
		if !r.less(b.at(low+half, j)) {
			low += half
		}
		n -= half
	}
	return low
}
