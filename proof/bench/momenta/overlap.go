package momenta

import (
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Overlap says how alike the choices of two results are.
type Overlap struct {
	Entries  int // of the first result
	Same     int // that the second has too, with the same sign
	Opposite int // that the second has with the other sign
}

// Compare compares two results of tensors of these shapes.
func Compare(shapes audit.Shapes, a, b []codec.TensorResult) Overlap {
	var o Overlap
	for i, shape := range shapes {
		for c := range shape.Chunks {
			o.add(distro.TakenOf(a[i], c, shape.Chunks), distro.TakenOf(b[i], c, shape.Chunks))
		}
	}
	return o
}

// add compares two ascending lists.
func (o *Overlap) add(a, b audit.Taken) {
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
