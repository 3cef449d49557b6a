package tokenizer

import (
	"math"
	"slices"
)

// scratch is reusable memory for encoding.
type scratch struct {
	heap []uint64 // keys of pairs, a binary heap
	ends []end    // for each offset in a word, from 0 on
}

// A long word is merged in place. The ID of a symbol stays at the index of the symbol's first byte
// or character. The symbol's other indices are free. The first and the last of them contain the
// negated number of indices of the symbol, with which next and previous skip the free indices.
//
// A pair's key has the rank in the upper half and the index of its first symbol in the lower half,
// so the lowest key is the next pair to merge. A heap with all pairs would take twice the memory of
// the symbols. It is limited to a share of them and holds only the pairs with keys below a limit,
// which are all merged before the word is searched for further pairs.

// Limits of the heap, in keys. With an eighth of the symbols, a word is searched about 16 times.
const (
	heapShare = 8
	leastHeap = 1 << 16
)

// next returns the index of the symbol after the symbol at an index, or len(ids).
func next(ids []int32, at int) int {
	if at++; at < len(ids) && ids[at] < 0 {
		return at - 1 - int(ids[at])
	}
	return at
}

// previous returns the index of the symbol before the symbol at an index, or -1.
func previous(ids []int32, at int) int {
	if at--; at >= 0 && ids[at] < 0 {
		return at + 1 + int(ids[at])
	}
	return at
}

// join replaces the symbols at left and right by one with an ID.
func join(ids []int32, left, right int, id int32) {
	end := next(ids, right)
	ids[left], ids[right] = id, -1
	ids[left+1], ids[end-1] = int32(left-end), int32(left-end)
}

// mergeMany is mergeFew for long words, in time n log n.
func (m *bpe) mergeMany(s *scratch, ids []int32) int {
	return m.mergeWithin(s, ids, max(leastHeap, len(ids)/heapShare))
}

// mergeWithin is mergeMany with at most the given number of keys in the heap, at least 2.
func (m *bpe) mergeWithin(s *scratch, ids []int32, maximum int) int {
	for limit := uint64(0); limit < math.MaxUint64; {
		limit = m.collect(s, ids, maximum)
		for len(s.heap) > 0 {
			key := s.pop()
			left := int(uint32(key))
			if ids[left] < 0 {
				continue
			}
			right := next(ids, left)
			if right == len(ids) {
				continue
			}
			// The pair may have changed since it was pushed.
			rank, id := m.merges.get(ids[left], ids[right])
			if rank != int32(key>>32) {
				continue
			}
			join(ids, left, right, id)
			for _, at := range [2]int{left, previous(ids, left)} {
				if key := m.key(ids, at); key < limit {
					if s.push(key); len(s.heap) > maximum {
						limit = s.halve()
					}
				}
			}
		}
	}
	kept := 0
	for at := 0; at < len(ids); {
		after := next(ids, at)
		ids[kept] = ids[at]
		kept, at = kept+1, after
	}
	return kept
}

// key returns the key of the pair at a place, or math.MaxUint64 if there is none that merges.
func (m *bpe) key(ids []int32, left int) uint64 {
	if left < 0 {
		return math.MaxUint64
	}
	right := next(ids, left)
	if right == len(ids) {
		return math.MaxUint64
	}
	rank, _ := m.merges.get(ids[left], ids[right])
	if rank == noRank {
		return math.MaxUint64
	}
	return uint64(rank)<<32 | uint64(left)
}

// collect makes the heap of the pairs with the lowest keys. It returns the limit: the heap holds all
// keys below it.
func (m *bpe) collect(s *scratch, ids []int32, maximum int) (limit uint64) {
	limit = math.MaxUint64
	s.heap = slices.Grow(s.heap[:0], min(len(ids), maximum+1))
	for at := 0; at < len(ids); at = next(ids, at) {
		if key := m.key(ids, at); key < limit {
			if s.heap = append(s.heap, key); len(s.heap) > maximum {
				limit = s.lowest()
			}
		}
	}
	s.order()
	return limit
}

// halve drops the upper half of the keys. It returns the lowest of them, the new limit.
func (s *scratch) halve() (limit uint64) {
	limit = s.lowest()
	s.order()
	return limit
}

// lowest drops the upper half of the keys, in no order. It returns the lowest of them.
func (s *scratch) lowest() (limit uint64) {
	keys, middle := s.heap, len(s.heap)/2
	for low, high := 0, len(keys)-1; low < high; {
		pivot := keys[low+(high-low)/2]
		i, j := low, high
		for i <= j {
			for keys[i] < pivot {
				i++
			}
			for keys[j] > pivot {
				j--
			}
			if i <= j {
				keys[i], keys[j] = keys[j], keys[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case middle <= j:
			high = j
		case middle >= i:
			low = i
		default:
			low = high
		}
	}
	limit, s.heap = keys[middle], keys[:middle]
	return limit
}

// order makes a heap of the keys.
func (s *scratch) order() {
	for at := len(s.heap)/2 - 1; at >= 0; at-- {
		s.sink(at, s.heap[at])
	}
}

func (s *scratch) push(key uint64) {
	s.heap = append(s.heap, key)
	at := len(s.heap) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if s.heap[parent] <= key {
			break
		}
		s.heap[at] = s.heap[parent]
		at = parent
	}
	s.heap[at] = key
}

func (s *scratch) pop() uint64 {
	top, last := s.heap[0], len(s.heap)-1
	key := s.heap[last]
	if s.heap = s.heap[:last]; last > 0 {
		s.sink(0, key)
	}
	return top
}

// sink puts a key at a place of the heap, or below it.
func (s *scratch) sink(at int, key uint64) {
	for {
		child := 2*at + 1
		if child >= len(s.heap) {
			break
		}
		if child+1 < len(s.heap) && s.heap[child+1] < s.heap[child] {
			child++
		}
		if s.heap[child] >= key {
			break
		}
		s.heap[at] = s.heap[child]
		at = child
	}
	s.heap[at] = key
}
