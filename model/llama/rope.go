package llama

import (
	"math"

	"github.com/psyche-go/psyche/torch"
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

// rotation are the tables [positions,HeadDim/2] of cosines and sines.
type rotation struct {
	positions int64
	cos, sin  *torch.Tensor
}

// rotations gives the tables for so many positions. They are made anew, with room to
// spare, only when longer ones are needed.
func (m *Llama) rotations(s *torch.Scope, positions int64) (cos, sin *torch.Tensor) {
	if r := &m.rotation; r.positions < positions {
		if r.positions > 0 {
			r.cos.Free()
			r.sin.Free()
		}
		*r = newRotation(s, m.config, min(max(2*positions, 256), int64(m.config.MaxPositionEmbeddings)))
	}
	return m.rotation.cos.Narrow(0, 0, positions), m.rotation.sin.Narrow(0, 0, positions)
}

func newRotation(s *torch.Scope, c Config, positions int64) rotation {
	frequencies := c.Rope.frequencies(c.HeadDim)
	half := len(frequencies)
	cos, sin := make([]float32, int(positions)*half), make([]float32, int(positions)*half)
	for p := range int(positions) {
		for i, f := range frequencies {
			angle := float64(float32(p) * f)
			cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	table := func(values []float32) *torch.Tensor {
		return s.Keep(s.FromFloat32s(values, positions, int64(half)))
	}
	return rotation{positions: positions, cos: table(cos), sin: table(sin)}
}
