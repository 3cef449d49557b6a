package audit

import (
	"github.com/psyche-go/psyche/distro/codec"
)

// Overlap says how alike the choices of two results are, in some of their chunks.
type Overlap struct {
	Entries  int // of the first result
	Same     int // that the second has too, with the same sign
	Opposite int // that the second has with the other sign
}

// Share is the part of the entries that both results have, whatever their signs.
func (o Overlap) Share() float64 { return ratio(float64(o.Same+o.Opposite), float64(o.Entries)) }

// Compare compares two results in the given chunks. Different batches make trainers choose
// alike more often than chance would, a copy, or one with its signs turned, always.
func Compare(shapes Shapes, chunks []uint32, a, b []codec.TensorResult) Overlap {
	var o Overlap
	for _, chunk := range chunks {
		tensor, within, ok := shapes.Find(chunk)
		if !ok || tensor >= len(a) || tensor >= len(b) {
			continue
		}
		k := shapes[tensor].K
		if within >= min(len(a[tensor].Counts), len(b[tensor].Counts)) || (within+1)*k > min(len(a[tensor].Indices), len(b[tensor].Indices)) {
			continue
		}
		o.add(entries(a[tensor], within, k), entries(b[tensor], within, k))
	}
	return o
}

func entries(r codec.TensorResult, within, k int) Taken {
	at := within * k
	end := at + min(int(r.Counts[within]), k)
	return Taken{r.Indices[at:end], r.Values[at:end]}
}

// add compares two ascending lists.
func (o *Overlap) add(a, b Taken) {
	o.Entries += len(a.Indices)
	for i, j := 0, 0; i < len(a.Indices) && j < len(b.Indices); {
		switch {
		case a.Indices[i] < b.Indices[j]:
			i++
		case a.Indices[i] > b.Indices[j]:
			j++
		default:
			if (a.Values[i] < 0) == (b.Values[j] < 0) {
				o.Same++
			} else {
				o.Opposite++
			}
			i, j = i+1, j+1
		}
	}
}

// CopyShare is a share of common choices that no two honest results had in calibration, by far:
// see docs/audit.md.
const CopyShare = 0.6

// Copies returns the pairs of results of a round that have more than a share of their choices in
// common, each pair once with the lower number first. It does not say which is the copy.
// It compares every pair in the given chunks: with 256 results and 32 chunks of 8 entries
// 8 million comparisons.
func Copies(shapes Shapes, chunks []uint32, results [][]codec.TensorResult, share float64) [][2]int {
	var pairs [][2]int
	for i, a := range results {
		for j := i + 1; j < len(results); j++ {
			if o := Compare(shapes, chunks, a, results[j]); o.Entries > 0 && o.Share() > share {
				pairs = append(pairs, [2]int{i, j})
			}
		}
	}
	return pairs
}
