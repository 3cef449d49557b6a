package safetensors

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestFloat32s(t *testing.T) {
	negativeZero := math.Float32frombits(1 << 31)
	tests := []struct {
		name  string
		dtype DType
		data  []byte
		want  []float32
	}{
		{"F32", F32, []byte{0, 0, 0xc0, 0x3f, 0, 0, 0, 0x80}, []float32{1.5, negativeZero}},
		{"BF16", BF16, []byte{0xc0, 0x3f, 0x80, 0xff}, []float32{1.5, float32(math.Inf(-1))}},
		{"F16", F16, []byte{0x00, 0x3e, 0x01, 0x00, 0xff, 0x7b, 0x00, 0x80, 0x00, 0xfc, 0xff, 0x03},
			[]float32{1.5, 0x1p-24, 65504, negativeZero, float32(math.Inf(-1)), 0x1p-14 - 0x1p-24}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Tensor{DType: test.dtype, Shape: []int64{int64(len(test.want))}, Data: test.data}.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			bits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			if !slices.EqualFunc(got, test.want, bits) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	if _, err := (Tensor{DType: I64, Shape: []int64{0}}).Float32s(); !errors.Is(err, errInvalid) {
		t.Errorf("I64: error = %v, want errInvalid", err)
	}
	half, err := Tensor{DType: F16, Shape: []int64{1}, Data: []byte{1, 0x7e}}.Float32s()
	if err != nil || !math.IsNaN(float64(half[0])) {
		t.Errorf("NaN of F16: %v, %v", half, err)
	}
}

func TestFromFloat32sKeepsBits(t *testing.T) {
	bits := []uint32{0, 1 << 31, 0x7fc00001, 0xff800000, 1, 0x3f800000}
	values := make([]float32, len(bits))
	for i, b := range bits {
		values[i] = math.Float32frombits(b)
	}
	got, err := FromFloat32s("a", []int64{2, 3}, values).Float32s()
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range bits {
		if math.Float32bits(got[i]) != b {
			t.Errorf("%08x became %08x", b, math.Float32bits(got[i]))
		}
	}
}
