package codec

import (
	"fmt"
	"math"
	"math/bits"
)

// MaxUnit is the largest code of a chunk's unit.
const MaxUnit = 127

// MaxLevelBits is the maximum number of bits of a level.
const MaxLevelBits = 4

// firstUnit is the value that a tensor's first unit is encoded relative to.
const firstUnit uint8 = 40

// EncodeLevels is Encode for values that are integer multiples of their chunk's unit, with factors
// from 1 to 2^(levelBits−1) and their negatives. levelBits is 1 to MaxLevelBits.
func EncodeLevels(h Header, layouts []TensorLayout, levelBits int, results []TensorResult) ([]byte, error) {
	f, err := formOfLevels(levelBits)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return encode(h, layouts, f, results)
}

// DecodeLevels decodes the output of EncodeLevels for these layouts. For all other input it returns
// an error that wraps errInvalid.
func DecodeLevels(b []byte, layouts []TensorLayout, levelBits int) (Header, []TensorResult, error) {
	f, err := formOfLevels(levelBits)
	if err != nil {
		return Header{}, nil, fmt.Errorf("decode result: %w", err)
	}
	return decode(b, layouts, f)
}

// MaxLevelsSize is MaxSize for results of EncodeLevels. Layouts and levelBits must be valid.
func MaxLevelsSize(layouts []TensorLayout, levelBits int) int {
	return maxSize(layouts, form(levelBits+1))
}

// NewLevels returns an empty result for EncodeLevels.
func (l TensorLayout) NewLevels() TensorResult { return l.newResult(levels1) }

// CheckLevels reports the first problem of a result of this layout for EncodeLevels.
func (l TensorLayout) CheckLevels(r TensorResult, levelBits int) error {
	f, err := formOfLevels(levelBits)
	if err != nil {
		return err
	}
	return l.check(r, f)
}

// form is the form in which values are written. The header contains its number.
type form uint8

const (
	values   form = iota // the value itself
	signs                // its sign
	levels1              // a level of 1 bit; levels of 2, 3 and 4 bits follow
	lastForm = levels1 + MaxLevelBits - 1
)

func formOf(quantized bool) form {
	if quantized {
		return signs
	}
	return values
}

func formOfLevels(levelBits int) (form, error) {
	if levelBits < 1 || levelBits > MaxLevelBits {
		return 0, fmt.Errorf("%w: levels of %d bits, want 1 to %d", errInvalid, levelBits, MaxLevelBits)
	}
	return levels1 + form(levelBits-1), nil
}

func (f form) String() string {
	switch f {
	case values:
		return "values"
	case signs:
		return "signs"
	default:
		return fmt.Sprintf("levels of %d bits", f.bits())
	}
}

// levels returns the number of different magnitudes of a level, or 0 if values are not multiples of
// a unit.
func (f form) levels() int {
	if f < levels1 {
		return 0
	}
	return 1 << (f - levels1)
}

// bits returns the number of bits of a value.
func (f form) bits() int {
	switch f {
	case values:
		return 32
	case signs:
		return 1
	default:
		return int(f-levels1) + 1
	}
}

// leastUnit and mostUnit return the minimum and maximum numbers of bits of a unit.
func (f form) leastUnit() int { return min(f.levels(), 1) }
func (f form) mostUnit() int  { return min(f.levels(), 1) * (2*bits.Len(2*MaxUnit+1) - 1) }

// write returns the bits of a value; the lowest bit of a sign or level is the sign.
func (f form) write(v float32) uint64 {
	bits := uint64(math.Float32bits(v))
	if f == values {
		return bits
	}
	if f == signs {
		return bits >> 31
	}
	return bits>>31 | (uint64(max(v, -v))-1)<<1
}

// read is the inverse of write.
func (f form) read(bits uint64) float32 {
	if f == values {
		return math.Float32frombits(uint32(bits))
	}
	size := float32(bits>>1 + 1) // 1 for signs
	if bits&1 != 0 {
		return -size
	}
	return size
}

// check refuses values that the form cannot represent. It does not repeat the checks of checkValue.
func (f form) check(values []float32) error {
	limit := float32(f.levels())
	for _, v := range values {
		if size := max(v, -v); limit > 0 && (size > limit || size != float32(int(size))) {
			return fmt.Errorf("%w: level %v, want an integer up to %v", errInvalid, v, limit)
		}
	}
	return nil
}

// checkUnits refuses units if the result's form has none, and units that are too large.
func (l TensorLayout) checkUnits(r TensorResult, f form) error {
	want := 0
	if f.levels() > 0 {
		want = l.Chunks
	}
	if len(r.Units) != want || len(r.Units) > len(r.Counts) {
		return fmt.Errorf("%w: %d units, want %d", errInvalid, len(r.Units), want)
	}
	for c, u := range r.Units {
		if u > MaxUnit || r.Counts[c] == 0 && u != 0 {
			return fmt.Errorf("%w: chunk %d of %d entries has the unit %d", errInvalid, c, r.Counts[c], u)
		}
	}
	return nil
}

func (l TensorLayout) newResult(f form) TensorResult {
	r := l.NewResult()
	if f.levels() > 0 {
		r.Units = make([]uint8, l.Chunks)
	}
	return r
}

// unit writes a unit as its difference from the previous one.
func (w *bitWriter) unit(before, u uint8) {
	v := uint64(2*int(u)-2*int(before)) + 1
	if u < before {
		v = uint64(2*int(before) - 2*int(u))
	}
	n := bits.Len64(v) - 1
	w.write(1<<n, n+1)
	w.write(v&(1<<n-1), n)
}

// unit reads a unit.
func (r *bitReader) unit(before uint8) (uint8, error) {
	n := 0
	for r.read(1) == 0 {
		if n++; n >= bits.Len(2*MaxUnit+1) {
			return 0, fmt.Errorf("%w: a unit differs too much from the previous unit", errInvalid)
		}
	}
	v := int(1<<n | r.read(n))
	u := int(before) + v/2
	if v%2 == 0 {
		u = int(before) - v/2
	}
	if u < 0 || u > MaxUnit {
		return 0, fmt.Errorf("%w: unit %d, want 0 to %d", errInvalid, u, MaxUnit)
	}
	return uint8(u), nil
}
