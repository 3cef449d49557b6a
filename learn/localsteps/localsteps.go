package localsteps

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

var (
	// ErrNotFinite says that a sum or a weight is infinite or not a number.
	ErrNotFinite = errors.New("not a finite number")
	// ErrInput says that arguments do not fit each other.
	ErrInput = errors.New("invalid input")
)

// unitsPerOctave is how many units lie between one and twice as much.
const unitsPerOctave = 4

// Unit returns what a unit stands for, as a share of Reach. The largest, of code 0, is 1.75; each
// fourth code has half of it: 1.75, 1.5, 1.25, 1, 0.875 … 2⁻¹⁵.
func Unit(code uint8) float64 {
	return math.Ldexp(float64(7-code%unitsPerOctave)/unitsPerOctave, -int(code/unitsPerOctave))
}

// value returns what a level of a chunk stands for. It is exact: 24 bits of reach, 3 of the unit, 4 of
// the level.
func value(reach float32, unit uint8, level float32) float64 {
	return float64(float64(reach)*Unit(unit)) * float64(level)
}

// Feed adds how far a member came, d = before − after, to the sums of what it could not send:
// e ← decay·e + d. With a momentum u, which is not nil then, it adds that of Nesterov in place of d:
// u ← factor·u + d, e ← decay·e + d + factor·u. A mean of such steps is the step of the mean.
func Feed(sums, before, after []float32, decay float32, u []float32, factor float32) {
	for i := range sums {
		d := before[i] - after[i]
		if u != nil {
			u[i] = factor*u[i] + d
			d += factor * u[i]
		}
		sums[i] = decay*sums[i] + d
	}
}

// Finite reports whether no value is infinite or not a number.
func Finite(values []float32) bool {
	const exponent = 0xff << 23
	for _, v := range values {
		if math.Float32bits(v)&exponent == exponent {
			return false
		}
	}
	return true
}

// EncodeParams are the scalars of Encode.
type EncodeParams struct {
	Reach     float32 // what units are a share of: finite, at least 0
	TopK      int     // most elements of a chunk that are sent; cut to the chunk's size
	LevelBits int     // 1 to codec.MaxLevelBits
}

// Encode chooses the TopK largest sums of each chunk, by magnitude, of equals those that come first, and
// takes what it sends out of them. What is nearer to zero than to the chunk's unit is not sent. The
// result is of codec.EncodeLevels. With a Reach of 0 nothing is sent.
func Encode(l distro.Layout, sums []float32, p EncodeParams) (codec.TensorResult, error) {
	switch {
	case len(sums) != l.Elements():
		return codec.TensorResult{}, fmt.Errorf("encode: %w: %d sums for %d elements", ErrInput, len(sums), l.Elements())
	case p.TopK < 1 || p.LevelBits < 1 || p.LevelBits > codec.MaxLevelBits || !(p.Reach >= 0) || !Finite([]float32{p.Reach}):
		return codec.TensorResult{}, fmt.Errorf("encode: %w: %+v", ErrInput, p)
	case !Finite(sums):
		return codec.TensorResult{}, fmt.Errorf("encode: %w", ErrNotFinite)
	}
	to := l.Codec(p.TopK)
	result := to.NewLevels()
	if p.Reach == 0 {
		return result, nil
	}
	c := chooser{most: to.K, levels: float64(int(1) << (p.LevelBits - 1)), reach: p.Reach}
	var chunk []float32
	for i := range l.Chunks() {
		chunk = l.Chunk(sums, i, chunk)
		c.choose(chunk)
		unit := c.unit()
		at := i * to.K
		for _, chosen := range c.chosen {
			level := c.level(chosen.size, unit)
			if level == 0 {
				continue
			}
			if chunk[chosen.index] < 0 {
				level = -level
			}
			result.Indices[at], result.Values[at] = chosen.index, float32(level)
			place := l.At(i, int(chosen.index))
			sums[place] = float32(float64(sums[place]) - value(p.Reach, unit, float32(level)))
			at++
		}
		if result.Counts[i] = uint16(at - i*to.K); result.Counts[i] > 0 {
			result.Units[i] = unit
		}
	}
	return result, nil
}

// AddBack gives what Encode took out back to the sums, times a factor: of a result that did not count.
func AddBack(l distro.Layout, sums []float32, r codec.TensorResult, reach, factor float32) error {
	if len(sums) != l.Elements() || len(r.Counts) != l.Chunks() || len(r.Units) != l.Chunks() {
		return fmt.Errorf("add back: %w: %d sums and %d counts for %d elements", ErrInput, len(sums), len(r.Counts), l.Elements())
	}
	k := len(r.Indices) / len(r.Counts)
	for c, count := range r.Counts {
		for i := c * k; i < c*k+int(count); i++ {
			place := l.At(c, int(r.Indices[i]))
			sums[place] = float32(float64(sums[place]) + float64(factor)*value(reach, r.Units[c], r.Values[i]))
		}
	}
	return nil
}

// ApplyParams are the scalars of Apply.
type ApplyParams struct {
	Reach     float32 // as of EncodeParams
	LevelBits int
	Rate      float32 // of the outer step: 1 moves the weights by the mean of the results
}

// Apply moves the weights of a tensor against the mean of the results, in the order given:
// w ← w − Rate·Σ cᵢ·vᵢ / n. cᵢ is 1, or less for a result that is too long (see Shares). Without results nothing moves.
// Every result is checked before any weight changes.
func Apply(l distro.Layout, results []codec.TensorResult, weights []float32, p ApplyParams) error {
	if len(weights) != l.Elements() || !(p.Reach >= 0) || !(p.Rate >= 0) || !Finite([]float32{p.Reach, p.Rate}) {
		return fmt.Errorf("apply: %w: %d weights for %d elements, reach %v, rate %v", ErrInput, len(weights), l.Elements(), p.Reach, p.Rate)
	}
	strides := make([]int, len(results))
	for i, r := range results {
		strides[i] = len(r.Indices) / l.Chunks()
		to := codec.TensorLayout{Chunks: l.Chunks(), ChunkSize: l.ChunkSize(), K: strides[i]}
		if err := to.CheckLevels(r, p.LevelBits); err != nil {
			return fmt.Errorf("apply: result %d: %w: %w", i, ErrInput, err)
		}
	}
	if len(results) == 0 {
		return nil
	}
	shares, scale := Shares(results, p.Reach), float64(p.Rate)/float64(len(results))
	sums := make([]float64, l.ChunkSize())
	touched := make([]uint16, 0, l.ChunkSize())
	for c := range l.Chunks() {
		touched = touched[:0]
		for i, r := range results {
			at := c * strides[i]
			for j, index := range r.Indices[at:][:r.Counts[c]] {
				if sums[index] == 0 {
					touched = append(touched, index) // twice where a sum came back to zero: harmless
				}
				sums[index] += float64(shares[i] * value(p.Reach, r.Units[c], r.Values[at+j]))
			}
		}
		for _, index := range touched {
			weights[l.At(c, int(index))] -= float32(sums[index] * scale)
			sums[index] = 0
		}
	}
	return nil
}

// most is how many times the median a result may be long.
const most = 2

// Shares returns what each result of a tensor is multiplied with: less than 1 for one that is longer than
// twice the median of those that say anything. So a member that says larger numbers than the others
// gains little by it.
func Shares(results []codec.TensorResult, reach float32) []float64 {
	lengths, speaking := make([]float64, len(results)), make([]float64, 0, len(results))
	for i, r := range results {
		if lengths[i] = length(r, reach); lengths[i] > 0 {
			speaking = append(speaking, lengths[i])
		}
	}
	shares := make([]float64, len(results))
	limit := math.Inf(1)
	if len(speaking) > 0 {
		slices.Sort(speaking)
		limit = most * speaking[(len(speaking)-1)/2]
	}
	for i := range shares {
		shares[i] = 1
		if lengths[i] > limit {
			shares[i] = limit / lengths[i]
		}
	}
	return shares
}

// length returns the L2 norm of a result.
func length(r codec.TensorResult, reach float32) float64 {
	squares := 0.0
	k := len(r.Indices) / len(r.Counts)
	for c, count := range r.Counts {
		for _, level := range r.Values[c*k:][:count] {
			v := value(reach, r.Units[c], level)
			squares += float64(v * v) // the conversion keeps the product from being fused with the sum
		}
	}
	return math.Sqrt(squares)
}
