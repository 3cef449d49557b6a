package torch

import "fmt"

// DType is the element type of a tensor.
type DType int

// Element types, with the numbers of the shim (abi.h).
const (
	F32 DType = iota
	BF16
	F16
	F64
	I64
	I32
	U8
	Bool
)

var dtypes = [...]struct {
	name string
	size int
}{
	F32: {"f32", 4}, BF16: {"bf16", 2}, F16: {"f16", 2}, F64: {"f64", 8},
	I64: {"i64", 8}, I32: {"i32", 4}, U8: {"u8", 1}, Bool: {"bool", 1},
}

// String returns the short name, for example "bf16".
func (d DType) String() string {
	if d < 0 || int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", int(d))
	}
	return dtypes[d].name
}

// Size returns the number of bytes of one element.
func (d DType) Size() int { return dtypes[d].size }
