package sbpf

import (
	"errors"
	"fmt"
)

const (
	opCall     = 0x85
	opCallTo   = 0x8d // the address is in a register
	opExit     = 0x95
	fromSystem = 0 // source field of a system call
)

// jump returns the index of the next instruction minus 1, because Run adds 1.
func (m *Machine) jump(i *instruction, at int) (next int, ended bool) {
	switch i.op {
	case opCall, opCallTo:
		return m.call(i, at), false
	case opExit:
		return m.exit(at)
	}
	value := uint64(int64(i.immediate))
	if i.op&8 != 0 {
		value = m.r[i.source]
	}
	if m.jumps(i.op>>4, m.r[i.destination], value) {
		return at + int(i.offset), false
	}
	return at, false
}

func (m *Machine) jumps(condition byte, a, b uint64) bool {
	switch condition {
	case 0:
		return true
	case 1:
		return a == b
	case 2:
		return a > b
	case 3:
		return a >= b
	case 4:
		return a&b != 0
	case 5:
		return a != b
	case 6:
		return int64(a) > int64(b)
	case 7:
		return int64(a) >= int64(b)
	case 10:
		return a < b
	case 11:
		return a <= b
	case 12:
		return int64(a) < int64(b)
	case 13:
		return int64(a) <= int64(b)
	}
	m.fault = ErrInstruction
	return false
}

func (m *Machine) call(i *instruction, at int) int {
	if i.op == opCall && i.source == fromSystem {
		m.r[0] = m.system(uint32(i.immediate))
		if m.fault != nil && !errors.Is(m.fault, ErrSyscall) {
			m.fault = fmt.Errorf("%w: %w", ErrSystem, m.fault)
		}
		return at
	}
	if len(m.calls) == maxDepth-1 {
		m.fault = ErrDepth
		return at
	}
	m.calls = append(m.calls, frame{at, [4]uint64(m.r[6:10])})
	m.r[10] += frameSize
	if i.op == opCallTo {
		return int((m.r[i.destination]-TextAddress)/8) - 1
	}
	return at + int(i.immediate)
}

func (m *Machine) exit(at int) (next int, ended bool) {
	if len(m.calls) == 0 {
		return at, true
	}
	c := m.calls[len(m.calls)-1]
	m.calls = m.calls[:len(m.calls)-1]
	copy(m.r[6:10], c.kept[:])
	m.r[10] -= frameSize
	return c.at, false
}
