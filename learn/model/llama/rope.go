package llama

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// frequencies are the angles by which each pair of a head's elements turns per position,
// in radians. They are rounded to f32 as transformers does, since a model was trained
// with those.
func (r Rope) frequencies(headDim int) []float32 {
	out := make([]float32, headDim/2)
	for i := range out {
		turned := math.Pow(float64(float32(r.Theta)), float64(float32(2*i)/float32(headDim)))
		out[i] = float32(r.scaled(float64(1 / float32(turned))))
	}
	return out
}

// scaled slows down a frequency for a context longer than the one trained with.
func (r Rope) scaled(frequency float64) float64 {
	switch r.Type {
	case "linear":
		return frequency / r.Scale
	case "llama3":
		wavelength := 2 * math.Pi / frequency
		// 1: as it was, 0: slowed down by the whole factor.
		smooth := (r.OriginalContext/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
		smooth = min(max(smooth, 0), 1)
		return (1-smooth)*frequency/r.Scale + smooth*frequency
	}
	return frequency
}

// rotations gives the tables of cosines and sines for count positions from first on.
func (m *Llama) rotations(s *torch.Scope, first, count int64) (cos, sin *torch.Tensor) {
	c := m.config
	return m.rotation.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns {
		return rotary.Turns{Frequencies: c.Rope.frequencies(c.HeadDim), Scale: 1}
	})
}
