package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// FromFloat32s returns an F32 tensor with a copy of the values in row-major order.
func FromFloat32s(name string, shape []int64, values []float32) Tensor {
	data := make([]byte, 4*len(values))
	for i, value := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(value))
	}
	return Tensor{Name: name, DType: F32, Shape: append([]int64{}, shape...), Data: data}
}

// Float32s returns the elements of a valid F32, BF16 or F16 tensor. The conversion is exact,
// because every value of these types is a float32.
func (t Tensor) Float32s() ([]float32, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	switch t.DType {
	case F32:
		values := make([]float32, len(t.Data)/4)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
		return values, nil
	case BF16:
		values := make([]float32, len(t.Data)/2)
		for i := range values {
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
		return values, nil
	case F16:
		values := make([]float32, len(t.Data)/2)
		for i := range values {
			values[i] = fromHalf(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
		return values, nil
	}
	return nil, fmt.Errorf("%w: tensor %q: %s cannot be read as float32, want F32, BF16 or F16", errInvalid, t.Name, t.DType)
}

// fromHalf converts an IEEE 754 binary16 number.
func fromHalf(half uint16) float32 {
	sign := uint32(half>>15) << 31
	exponent, fraction := uint32(half>>10)&0x1f, uint32(half)&0x3ff
	switch exponent {
	case 0: // zero or subnormal: fraction · 2⁻²⁴
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
