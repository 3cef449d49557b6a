//go:build cgo && amd64

package distro

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall
#include "kernel.h"
*/
import "C"

import (
	"crypto/sha256"
	"unsafe"
)

// nativeISAs returns the instruction sets of this processor that the C kernels support, slowest
// first.
func nativeISAs() []isa {
	supported := uint(C.psyche_distro_isas())
	var sets []isa
	for _, set := range []struct {
		name string
		code C.int
	}{
		{"baseline", C.PSYCHE_DISTRO_BASELINE},
		{"avx2", C.PSYCHE_DISTRO_AVX2},
		{"avx512", C.PSYCHE_DISTRO_AVX512},
	} {
		if supported>>uint(set.code)&1 == 1 {
			sets = append(sets, isa{
				name: set.name,
				new:  func(l Layout) chunkKernel { return newNative(set.code, l) },
				squares: func(values []float32) float64 {
					return float64(C.psyche_distro_squares(set.code, floats(values), C.int64_t(len(values))))
				},
				digest: digest,
			})
		}
	}
	return sets
}

// digest is audit.Digest for machines where the memory layout of a number equals its hashed
// encoding.
func digest(chunk []float32) [32]byte {
	return sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(chunk))), 4*len(chunk)))
}

// native runs the C kernels.
type native struct {
	code              C.int
	layout            Layout
	columnDCT, rowDCT *cosineTable
	scratch           []float32
}

func newNative(code C.int, l Layout) *native {
	const alignment = 64
	size := int(C.psyche_distro_scratch(C.int(l.chunkRows), C.int(l.chunkCols)))
	scratch := make([]float32, size+alignment/4)
	if past := uintptr(unsafe.Pointer(unsafe.SliceData(scratch))) % alignment; past != 0 {
		scratch = scratch[(alignment-past)/4:]
	}
	return &native{
		code:      code,
		layout:    l,
		columnDCT: cosineTables[l.chunkRows](),
		rowDCT:    cosineTables[l.chunkCols](),
		scratch:   scratch,
	}
}

func (n *native) plan() C.psyche_distro_plan {
	return C.psyche_distro_plan{
		column:  axis(n.columnDCT),
		row:     axis(n.rowDCT),
		secants: floats(secants()),
		stride:  C.int64_t(n.layout.cols),
		blocks:  C.int64_t(n.layout.colBlocks()),
		scratch: floats(n.scratch),
	}
}

func axis(t *cosineTable) C.psyche_distro_axis {
	lee := C.int(0)
	if t.fast {
		lee = 1
	}
	return C.psyche_distro_axis{n: C.int(t.n), lee: lee, mean: C.float(t.mean), scale: C.float(t.scale), basis: floats(t.basis)}
}

func (n *native) encode(first, last int, delta, left, grad []float32, p EncodeParams, k int, out slots) int {
	return int(C.psyche_distro_encode(n.code, n.plan(), C.int64_t(first), C.int64_t(last),
		floats(delta), floats(left), floats(grad), C.float(p.Decay), C.float(p.LR), C.float(p.Floor),
		C.int(k), shorts(out.counts), shorts(out.indices), floats(out.values)))
}

func (n *native) apply(first, last int, in entries, weights []float32, p ApplyParams) {
	C.psyche_distro_apply(n.code, n.plan(), C.int64_t(first), C.int64_t(last),
		(*C.int32_t)(unsafe.SliceData(in.offsets)), shorts(in.indices), floats(in.values),
		floats(weights), floats(in.rates), C.float(p.WeightFactor))
}

func (n *native) add(first, last int, in entries, delta []float32) {
	C.psyche_distro_add(n.code, n.plan(), C.int64_t(first), C.int64_t(last),
		(*C.int32_t)(unsafe.SliceData(in.offsets)), shorts(in.indices), floats(in.values), floats(delta))
}

func floats(s []float32) *C.float   { return (*C.float)(unsafe.SliceData(s)) }
func shorts(s []uint16) *C.uint16_t { return (*C.uint16_t)(unsafe.SliceData(s)) }
