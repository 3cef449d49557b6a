package sbpf

import "math/bits"

// Arithmetic operations, from bits 4 to 7 of an instruction's operation.
const (
	add = iota
	subtract
	multiply
	divide
	or
	and
	shiftLeft
	shiftRight
	negate
	remainder
	xor
	move
	shiftSigned
	toEndian
)

func (m *Machine) arithmetic(i *instruction) {
	value := uint64(int64(i.immediate))
	if i.op&8 != 0 {
		value = m.r[i.source]
	}
	d := &m.r[i.destination]
	operation := i.op >> 4
	if (operation == divide || operation == remainder) && (value == 0 || i.op&7 == 4 && uint32(value) == 0) {
		m.fault = ErrDivision
		return
	}
	if i.op&7 == 4 {
		m.arithmetic32(i, d, uint32(value))
		return
	}
	switch operation {
	case add:
		*d += value
	case subtract:
		*d -= value
	case multiply:
		*d *= value
	case divide:
		*d /= value
	case or:
		*d |= value
	case and:
		*d &= value
	case shiftLeft:
		*d <<= value & 63
	case shiftRight:
		*d >>= value & 63
	case negate:
		*d = -*d
	case remainder:
		*d %= value
	case xor:
		*d ^= value
	case move:
		*d = value
	case shiftSigned:
		*d = uint64(int64(*d) >> (value & 63))
	default:
		m.fault = ErrInstruction
	}
}

// arithmetic32 operates on the lower half of a register. Additions and similar operations
// sign-extend into the upper half, where LLVM expects zeros. Package link rejects such instructions.
func (m *Machine) arithmetic32(i *instruction, d *uint64, b uint32) {
	a := uint32(*d)
	switch i.op >> 4 {
	case add:
		*d = uint64(int64(int32(a + b)))
	case subtract:
		*d = uint64(int64(int32(a - b)))
	case multiply:
		*d = uint64(int64(int32(a * b)))
	case divide:
		*d = uint64(a / b)
	case or:
		*d = uint64(a | b)
	case and:
		*d = uint64(a & b)
	case shiftLeft:
		*d = uint64(a << (b & 31))
	case shiftRight:
		*d = uint64(a >> (b & 31))
	case negate:
		*d = uint64(-a)
	case remainder:
		*d = uint64(a % b)
	case xor:
		*d = uint64(a ^ b)
	case move:
		*d = uint64(b)
	case shiftSigned:
		*d = uint64(uint32(int32(a) >> (b & 31)))
	case toEndian:
		*d = m.endian(i, *d)
	default:
		m.fault = ErrInstruction
	}
}

// endian truncates a number to its size, and swaps its bytes for big endian.
func (m *Machine) endian(i *instruction, v uint64) uint64 {
	big := i.op&8 != 0
	switch {
	case i.immediate == 16 && big:
		return uint64(bits.ReverseBytes16(uint16(v)))
	case i.immediate == 16:
		return uint64(uint16(v))
	case i.immediate == 32 && big:
		return uint64(bits.ReverseBytes32(uint32(v)))
	case i.immediate == 32:
		return uint64(uint32(v))
	case i.immediate == 64 && big:
		return bits.ReverseBytes64(v)
	case i.immediate == 64:
		return v
	}
	m.fault = ErrInstruction
	return 0
}
