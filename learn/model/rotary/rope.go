package rotary

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// Rope contains the rotation speeds of rotary positions.
type Rope struct {
	Theta float64
	Type  string  // "default", "linear", "dynamic", "llama3", "yarn" or "longrope"
	Scale float64 // of linear and llama3: factor between the new and the original length of the context

	// LowFreqFactor and HighFreqFactor belong to llama3: wavelengths shorter than
	// OriginalContext/HighFreqFactor stay, those longer than OriginalContext/LowFreqFactor are
	// stretched by Scale, and those in between in part.
	LowFreqFactor, HighFreqFactor float64
	OriginalContext               float64 // tokens

	Yarn *Yarn     // of yarn, else nil
	Long *LongRoPE // of longrope, else nil
}

// Parse is ParsePart for models that rotate the whole of each head.
func Parse(p *hfconfig.Checker, d hfconfig.Document, positions int, types ...string) Rope {
	d.RefusePartialRotary(p)
	return ParsePart(p, d, positions, types...)
}

// ParsePart checks the rotary positions of a config.json. types are the types that its model
// supports. The caller reads which part of each head rotates. positions is the longest sequence.
// "dynamic" slows only longer sequences, so here it is the same as the default.
func ParsePart(p *hfconfig.Checker, d hfconfig.Document, positions int, types ...string) Rope {
	minimum := 1.0
	if d.WantsYarn() { // its borders are divided by the logarithm of theta
		minimum += 1e-6
	}
	written := d.Rope(p, minimum, types...)
	scaling, field := written.Scaling, written.Field
	r := Rope{Theta: written.Theta, Type: written.Type}
	const missing = math.SmallestNonzeroFloat64 // below every lower limit
	switch r.Type {
	case "dynamic":
		p.Number(field+".factor", scaling.Factor, missing, 1, 1e6)
	case "linear", "llama3":
		r.Scale = p.Number(field+".factor", scaling.Factor, missing, 1, 1e6)
	case "yarn":
		r.Yarn = yarn(p, scaling, field, positions)
	}
	if r.Type == "llama3" {
		r.LowFreqFactor = p.Number(field+".low_freq_factor", scaling.LowFreqFactor, missing, 1e-3, 1e6)
		r.HighFreqFactor = p.Number(field+".high_freq_factor", scaling.HighFreqFactor, missing, 1e-3, 1e6)
		r.OriginalContext = p.Number(field+".original_max_position_embeddings", scaling.Original, missing, 1, 1<<26)
		if p.Err() == nil && r.HighFreqFactor < r.LowFreqFactor {
			p.Fail("%s.high_freq_factor %v is below low_freq_factor %v", field, r.HighFreqFactor, r.LowFreqFactor)
		}
	}
	return r
}

// Turns returns the angles for width elements of a head.
func (r Rope) Turns(width int) Turns {
	turns := Turns{Frequencies: r.frequencies(width), Scale: 1}
	switch {
	case r.Yarn != nil:
		turns.Scale = r.Yarn.TableScale
	case r.Long != nil:
		turns.Scale = r.Long.TableScale
	}
	return turns
}

// frequencies returns the angle in radians that each pair of elements rotates by from one position
// to the next. The angles are rounded to f32 as in transformers, because models were trained with
// these values.
func (r Rope) frequencies(width int) []float32 {
	out := make([]float32, width/2)
	low, high := r.Yarn.borders(width, r.Theta)
	for i := range out {
		turned := float32(math.Pow(float64(float32(r.Theta)), float64(float32(2*i)/float32(width))))
		if r.Long != nil {
			out[i] = 1 / (float32(r.Long.Short[i]) * turned)
			continue
		}
		if r.Yarn == nil {
			out[i] = float32(r.scaled(float64(1 / turned)))
			continue
		}
		slowed := 1 / (float32(r.Yarn.Factor) * turned)
		kept := 1 - min(max((float32(i)-low)/(high-low), 0), 1)
		out[i] = slowed*(1-kept) + 1/turned*kept
	}
	return out
}

// scaled slows a frequency for a context longer than the one trained with.
func (r Rope) scaled(frequency float64) float64 {
	switch r.Type {
	case "linear":
		return frequency / r.Scale
	case "llama3":
		wavelength := 2 * math.Pi / frequency
		// With smooth 1 the frequency is unchanged, with 0 it is divided by Scale. Equal factors skip the range between.
		if r.HighFreqFactor == r.LowFreqFactor && r.OriginalContext/wavelength <= r.LowFreqFactor {
			return frequency / r.Scale
		}
		smooth := (r.OriginalContext/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
		smooth = min(max(smooth, 0), 1)
		return (1-smooth)*frequency/r.Scale + smooth*frequency
	}
	return frequency
}
