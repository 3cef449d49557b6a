package localsteps

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// errInput means that arguments do not match each other.
var errInput = errors.New("invalid input")

// unitsPerOctave is the number of units per factor of two.
const unitsPerOctave = 4

// unitOf returns the size of a unit as a fraction of Reach. Code 0 is the largest, 1.75. Each fourth
// code halves it: 1.75, 1.5, 1.25, 1, 0.875 … 2⁻³¹.
func unitOf(code uint8) float64 { return units[code] }

// units is the table of unit sizes: the search for a chunk's unit reads thousands of sizes.
var units = func() (sizes [math.MaxUint8 + 1]float64) {
	for code := range sizes {
		sizes[code] = math.Ldexp(float64(7-code%unitsPerOctave)/unitsPerOctave, -(code / unitsPerOctave))
	}
	return sizes
}()

// reachOf returns the number that the units of a tensor are fractions of: the L2 norm of the change
// of a chunk in which every weight moves by reach.
func reachOf(l distro.Layout, reach float32) float32 {
	return float32(float64(reach) * math.Sqrt(float64(l.ChunkSize())))
}

// value returns the value of a level in a chunk. It is exact: 24 bits of reach, 3 of the unit, 4 of
// the level.
func value(reach float32, unit uint8, level float32) float64 {
	return float64(float64(reach)*unitOf(unit)) * float64(level)
}

// Far replaces the weights after a member's steps by its pseudo-gradient d = before − after. If u
// is not nil, it is a Nesterov momentum: u ← factor·u + d, and the result is d + factor·u. The step
// is linear, so the mean of the members' steps is the step of their mean.
func Far(before, after, u []float32, factor float32) {
	for i := range after {
		d := before[i] - after[i]
		if u != nil {
			u[i] = factor*u[i] + d
			d += factor * u[i]
		}
		after[i] = d
	}
}

// finite reports whether no value is infinite or not a number.
func finite(values []float32) bool {
	const exponent = 0xff << 23
	for _, v := range values {
		if math.Float32bits(v)&exponent == exponent {
			return false
		}
	}
	return true
}

// EncodeParams are the scalar parameters of Encode.
type EncodeParams struct {
	Reach     float32 // estimated maximum change of a weight in a round: finite, at least 0
	TopK      int     // maximum number of coefficients sent for each chunk; limited to the chunk's size
	LevelBits int     // 1 to codec.MaxLevelBits
	Decay     float32 // of the sums
}

// Encode adds the pseudo-gradient d to the sums of residuals, e ← Decay·e + d, chooses the TopK
// largest coefficients of each chunk's DCT, and subtracts the sent values, as rounded, from the
// sums. Coefficients that are nearer to zero than to the chunk's unit are not sent. The result is
// in the form of codec.EncodeLevels. With a Reach of 0 nothing is sent. After an error the sums may
// have changed.
func Encode(k *distro.Kernel, l distro.Layout, sums, d []float32, p EncodeParams) (codec.TensorResult, error) {
	if err := p.Check(); err != nil {
		return codec.TensorResult{}, err
	}
	largest, err := k.Encode(l, sums, d, p.Largest())
	if err != nil {
		return codec.TensorResult{}, err
	}
	result := Quantize(l, largest, p)
	return result, k.AddBack(l, sums, largest)
}

// Largest returns the parameters with which DisTrO's kernels add a pseudo-gradient to the sums and take
// the largest coefficients from them.
func (p EncodeParams) Largest() distro.EncodeParams {
	return distro.EncodeParams{Decay: p.Decay, LR: 1, TopK: p.TopK}
}

// Check returns an error if the parameters are not valid.
func (p EncodeParams) Check() error {
	if p.LevelBits < 1 || p.LevelBits > codec.MaxLevelBits || !(p.Reach >= 0) || !finite([]float32{p.Reach}) {
		return fmt.Errorf("encode: %w: %+v", errInput, p)
	}
	return nil
}

// Most returns the largest level.
func (p EncodeParams) Most() float64 { return float64(int(1) << (p.LevelBits - 1)) }

// ReachOf returns the number that the units of a tensor are fractions of.
func (p EncodeParams) ReachOf(l distro.Layout) float64 { return float64(reachOf(l, p.Reach)) }

// Quantize rounds the largest coefficients of a tensor's sums to the levels that Encode sends, and
// replaces the coefficients by the part that is not sent, which must be added back to the sums.
func Quantize(l distro.Layout, largest codec.TensorResult, p EncodeParams) codec.TensorResult {
	to := l.Codec(p.TopK)
	result := to.NewLevels()
	if p.Reach > 0 {
		c := chooser{levels: p.Most(), reach: p.ReachOf(l)}
		for i, count := range largest.Counts {
			c.quantize(largest, result, i, i*to.K, int(count))
		}
	}
	return result
}

// Values returns the coefficients for the levels of a result, times a factor: the values that
// Encode subtracted from the sums. Coefficients that are too small for single precision are
// omitted.
func Values(l distro.Layout, r codec.TensorResult, reach, factor float32) (codec.TensorResult, error) {
	if len(r.Counts) != l.Chunks() || len(r.Units) != l.Chunks() {
		return codec.TensorResult{}, fmt.Errorf("values: %w: %d counts and %d units for %d chunks", errInput, len(r.Counts), len(r.Units), l.Chunks())
	}
	values := newMerged(len(r.Counts), len(r.Indices)/len(r.Counts))
	of := reachOf(l, reach)
	for c, count := range r.Counts {
		at := c * values.stride
		for i, index := range r.Indices[at:][:count] {
			values.append(c, index, float32(float64(factor)*value(of, r.Units[c], r.Values[at+i])))
		}
	}
	return values.result, nil
}

// merged is a result that is built entry by entry.
type merged struct {
	result codec.TensorResult
	stride int
}

func newMerged(chunks, stride int) merged {
	return merged{codec.TensorLayout{Chunks: chunks, K: stride}.NewResult(), stride}
}

// append adds an entry to a chunk, unless it is zero.
func (m *merged) append(chunk int, index uint16, v float32) {
	if v == 0 {
		return
	}
	at := chunk*m.stride + int(m.result.Counts[chunk])
	m.result.Indices[at], m.result.Values[at] = index, v
	m.result.Counts[chunk]++
}

// ApplyParams are the parameters of Apply.
type ApplyParams struct {
	Reach     float32 // as EncodeParams.Reach
	LevelBits int
	Rate      float32      // of the outer step: 1 moves the weights by the mean of the results
	Votes     distro.Votes // of the results
}

// Apply moves the weights of a tensor against the mean of the results, in the given order: w ← w −
// DCT⁻¹(Rate·Σ vᵢ·cᵢ·xᵢ / Σ vᵢ). vᵢ is the vote of a result, and cᵢ is 1, or less for a result with
// too large a norm (see sharesOf). Without results the weights do not change. Apply checks every result before it changes any
// weight.
func Apply(k *distro.Kernel, l distro.Layout, results []codec.TensorResult, weights []float32, p ApplyParams) error {
	if len(weights) != l.Elements() || !(p.Reach >= 0) || !(p.Rate >= 0) || !finite([]float32{p.Reach, p.Rate}) {
		return fmt.Errorf("apply: %w: %d weights for %d elements, reach %v, rate %v", errInput, len(weights), l.Elements(), p.Reach, p.Rate)
	}
	if err := p.Votes.Check(len(results)); err != nil {
		return fmt.Errorf("apply: %w: %w", errInput, err)
	}
	for i, r := range results {
		to := codec.TensorLayout{Chunks: l.Chunks(), ChunkSize: l.ChunkSize(), K: len(r.Indices) / l.Chunks()}
		if err := to.CheckLevels(r, p.LevelBits); err != nil {
			return fmt.Errorf("apply: result %d: %w: %w", i, errInput, err)
		}
	}
	if len(results) == 0 {
		return nil
	}
	return k.AddBack(l, weights, mean(l, results, p))
}

// mean returns the change of a tensor's coefficients.
func mean(l distro.Layout, results []codec.TensorResult, p ApplyParams) codec.TensorResult {
	room := 1 // maximum number of entries of a chunk
	for c := range l.Chunks() {
		together := 0
		for _, r := range results {
			together += int(r.Counts[c])
		}
		room = max(room, min(together, l.ChunkSize(), math.MaxUint16))
	}
	all, reach := newMerged(l.Chunks(), room), reachOf(l, p.Reach)
	shares, scale := factorsOf(results, p)
	sums, set := make([]float64, l.ChunkSize()), make([]uint64, (l.ChunkSize()+63)/64)
	for c := range l.Chunks() {
		for i, r := range results {
			at := c * (len(r.Indices) / l.Chunks())
			for j, index := range r.Indices[at:][:r.Counts[c]] {
				set[index/64] |= 1 << (index % 64)
				sums[index] += float64(shares[i] * value(reach, r.Units[c], r.Values[at+j]))
			}
		}
		for word := range set {
			for ; set[word] != 0; set[word] &= set[word] - 1 {
				index := word*64 + bits.TrailingZeros64(set[word])
				all.append(c, uint16(index), -float32(sums[index]*scale))
				sums[index] = 0
			}
		}
	}
	return all.result
}

// factorsOf returns the factor of each result of a tensor in the sum of all results, and the factor of the
// sum.
func factorsOf(results []codec.TensorResult, p ApplyParams) (shares []float64, scale float64) {
	shares = sharesOf(results)
	for i := range shares {
		shares[i] *= float64(distro.Weight(p.Votes.Of(i)))
	}
	return shares, float64(p.Rate) / float64(distro.Weight(max(p.Votes.Sum(len(results)), 1)))
}

// most is the maximum L2 norm of a result as a multiple of the median norm.
const most = 2

// sharesOf returns the factor for each result of a tensor. It is less than 1 for a result whose L2
// norm is more than twice the median norm of the nonzero results. A member that sends larger values
// than the others therefore gains little.
func sharesOf(results []codec.TensorResult) []float64 {
	lengths, speaking := make([]float64, len(results)), make([]float64, 0, len(results))
	for i, r := range results {
		if lengths[i] = length(r); lengths[i] > 0 {
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

// length returns the L2 norm of a result, in units of the reach.
func length(r codec.TensorResult) float64 {
	squares := 0.0
	k := len(r.Indices) / len(r.Counts)
	for c, count := range r.Counts {
		for _, level := range r.Values[c*k:][:count] {
			v := value(1, r.Units[c], level)
			squares += float64(v * v) // the conversion keeps the product from being fused with the sum
		}
	}
	return math.Sqrt(squares)
}
