package rotary

import (
	"math"

	"github.com/psyche-go/psyche/learn/torch"
)

// Table contains the cosines and sines [positions,pairs] of a model on one engine. The zero value
// is empty.
type Table struct {
	positions int64
	cos, sin  *torch.Tensor
}

// Turns contains the rotation speeds of the pairs of a head's elements.
type Turns struct {
	Frequencies []float32 // angles per position, in radians
	Scale       float64   // of cosines and sines
}

// Rows returns the tables of count positions from first on. If longer tables are needed, it computes
// new ones, with spare capacity. limit is the maximum number of positions.
func (t *Table) Rows(s *torch.Scope, first, count, limit int64, turns func() Turns) (cos, sin *torch.Tensor) {
	if t.positions < first+count {
		t.Free()
		*t = fill(s, turns(), min(max(2*(first+count), 256), limit))
	}
	return t.cos.Narrow(0, first, count), t.sin.Narrow(0, first, count)
}

// fill computes the angles in f32, as transformers does, because models were trained with these
// values.
func fill(s *torch.Scope, turns Turns, positions int64) Table {
	pairs := len(turns.Frequencies)
	cos, sin := make([]float32, int(positions)*pairs), make([]float32, int(positions)*pairs)
	for p := range int(positions) {
		for i, f := range turns.Frequencies {
			angle := float64(float32(p) * f)
			cos[p*pairs+i], sin[p*pairs+i] = float32(math.Cos(angle)*turns.Scale), float32(math.Sin(angle)*turns.Scale)
		}
	}
	tensor := func(values []float32) *torch.Tensor {
		return s.Keep(s.FromFloat32s(values, positions, int64(pairs)))
	}
	return Table{positions: positions, cos: tensor(cos), sin: tensor(sin)}
}

// Deinterleave moves elements 2i and 2i+1 of the heads x [B,T,heads,width] to i and i+width/2. Products of
// queries and keys stay the same if both are moved.
func Deinterleave(x *torch.Tensor) *torch.Tensor {
	shape := x.Shape()
	return x.Reshape(shape[0], shape[1], shape[2], shape[3]/2, 2).Transpose(3, 4).Reshape(shape...)
}

// Free frees the tables.
func (t *Table) Free() {
	if t.positions > 0 {
		t.cos.Free()
		t.sin.Free()
	}
	*t = Table{}
}
