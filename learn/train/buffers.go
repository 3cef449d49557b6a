package train

import "github.com/psyche-go/psyche/learn/distro"

// buffers holds the momentum of a trainer, or its residual, in the memory of the CPU: a slice for each
// tensor, in the order of the tensors' names. Values are initially zero.
type buffers struct {
	now    [][]float32
	before [][]float32 // from before the newest step; nil: not kept
}

func newBuffers(layouts []distro.Layout) *buffers { return &buffers{now: zeros(layouts)} }

// zeros returns a slice for each layout. Zeros use memory only after the first access.
func zeros(layouts []distro.Layout) (values [][]float32) {
	for _, l := range layouts {
		values = append(values, make([]float32, l.Elements()))
	}
	return values
}

// begin begins a step, which reads the values that begin returns and writes all of now. With one
// buffer both are the same.
func (b *buffers) begin() (from [][]float32) {
	if b.before == nil {
		return b.now
	}
	b.swap()
	return b.before
}

// swap exchanges the buffers. After begin it restores the values from before the step.
func (b *buffers) swap() { b.now, b.before = b.before, b.now }
