package safetensors

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// maxHeaderSize is the maximum size of the JSON header in bytes. It is the limit of the reference
// JavaScript reader; 40,000 tensors need about 5 MB.
const maxHeaderSize = 25_000_000

// errInvalid means that bytes or tensors are not a valid safetensors file.
var errInvalid = errors.New("invalid safetensors")

// DType is the name of an element type in the header.
type DType string

// Element types of the format.
const (
	Bool   DType = "BOOL"
	F4     DType = "F4"
	F6E2M3 DType = "F6_E2M3"
	F6E3M2 DType = "F6_E3M2"
	U8     DType = "U8"
	I8     DType = "I8"
	F8E5M2 DType = "F8_E5M2"
	F8E4M3 DType = "F8_E4M3"
	F8E8M0 DType = "F8_E8M0"
	I16    DType = "I16"
	U16    DType = "U16"
	F16    DType = "F16"
	BF16   DType = "BF16"
	I32    DType = "I32"
	U32    DType = "U32"
	F32    DType = "F32"
	C64    DType = "C64"
	F64    DType = "F64"
	I64    DType = "I64"
	U64    DType = "U64"
)

// dtypes lists the element types in the (descending) order in which the reference writer sorts
// tensors, with their width in bits.
var dtypes = []struct {
	name DType
	bits uint64
}{
	{Bool, 8}, {F4, 4}, {F6E2M3, 6}, {F6E3M2, 6}, {U8, 8}, {I8, 8},
	{F8E5M2, 8}, {F8E4M3, 8}, {F8E8M0, 8}, {I16, 16}, {U16, 16}, {F16, 16}, {BF16, 16},
	{I32, 32}, {U32, 32}, {F32, 32}, {C64, 64}, {F64, 64}, {I64, 64}, {U64, 64},
}

// rank returns the index of the type in dtypes, or -1 for an unknown type.
func (d DType) rank() int {
	for i := range dtypes {
		if dtypes[i].name == d {
			return i
		}
	}
	return -1
}

// Size returns the size in bytes of a tensor of the given type and shape. It fails for an unknown
// type, a negative dimension, a size over 2^63-1, and a size that is not a whole number of bytes.
func Size(dtype DType, shape []int64) (int64, error) {
	rank := dtype.rank()
	if rank < 0 {
		return 0, fmt.Errorf("%w: unknown dtype %q", errInvalid, dtype)
	}
	elements, empty := uint64(1), slices.Contains(shape, 0)
	for _, dim := range shape {
		if dim < 0 {
			return 0, fmt.Errorf("%w: negative dimension in shape %v", errInvalid, shape)
		}
		if empty {
			continue
		}
		high, low := bits.Mul64(elements, uint64(dim))
		if high != 0 {
			return 0, fmt.Errorf("%w: shape %v overflows", errInvalid, shape)
		}
		elements = low
	}
	if empty {
		return 0, nil
	}
	high, total := bits.Mul64(elements, dtypes[rank].bits)
	if high != 0 || total>>3 > 1<<62 {
		return 0, fmt.Errorf("%w: shape %v of %s overflows", errInvalid, shape, dtype)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("%w: shape %v of %s is not a whole number of bytes", errInvalid, shape, dtype)
	}
	return int64(total >> 3), nil
}

// Tensor is a named array. Data contains its elements, little-endian in row-major order.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64 // empty for a scalar
	Data  []byte
}

// Validate checks that the data has the size required by type and shape.
func (t Tensor) Validate() error {
	size, err := Size(t.DType, t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if int64(len(t.Data)) != size {
		return fmt.Errorf("%w: tensor %q: %s of shape %v needs %d bytes, has %d",
			errInvalid, t.Name, t.DType, t.Shape, size, len(t.Data))
	}
	return nil
}

// byLayout orders tensors as the reference writer does: wider types first, so that every tensor
// stays aligned to its element, then by name.
func byLayout(a, b Tensor) int {
	if a.DType != b.DType {
		return b.DType.rank() - a.DType.rank()
	}
	return strings.Compare(a.Name, b.Name)
}
