package train

import "github.com/psyche-go/psyche/learn/distro"

// buffers holds the momentum of a trainer, or its residual, in the memory of the CPU: a slice for each
// tensor, in the order of the tensors' names. Values are initially zero.
type buffers struct {
	now    [][]float32
	before [][]float32 // from before the newest step; nil: not kept
}

func newBuffers(layouts []distro.Layout) *buffers { return &buffers{now: zeros(layouts)} }

// zeros returns a slice for each layout. Zeros take no memory before they are used.
func zeros(layouts []distro.Layout) (values [][]float32) {
	for _, l := range layouts {
		values = append(values, make([]float32, l.Elements()))
	}
	return values
}

// begin keeps the values before a step changes them.
func (b *buffers) begin() { copyAll(b.before, b.now) }

// restore restores the values from before the newest step. before then has the values after it.
func (b *buffers) restore() { b.now, b.before = b.before, b.now }
