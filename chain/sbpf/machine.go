package sbpf

import (
	"errors"
	"fmt"
)

// Errors that stop a program.
var (
	errAccess      = errors.New("access to memory outside the program's")
	ErrUnits       = errors.New("out of compute units")
	ErrDepth       = errors.New("calls nested too deeply")
	ErrInstruction = errors.New("unknown instruction")
	ErrDivision    = errors.New("division by zero")
	ErrSyscall     = errors.New("unknown system call")
	ErrAlign       = errors.New("unaligned pointer")
	ErrOverlap     = errors.New("copy onto itself")
	ErrAbort       = errors.New("program gave up")
)

// ErrSystem means that a program was stopped in a system call.
var ErrSystem = errors.New("system call failed")

// ErrCharge is ErrUnits in a system call, which the chain distinguishes from ErrUnits in an
// instruction.
var ErrCharge = fmt.Errorf("%w in a system call", ErrUnits)

const (
	frameSize = 4096
	maxDepth  = 64
	heapSize  = 32 << 10
)

// Machine runs a program, any number of times.
type Machine struct {
	program      *Program
	stack        []byte
	heap         []byte
	input        []byte
	units, limit uint64
	r            [11]uint64
	calls        []frame
	fault        error // of the last access or call
	syscalls     map[uint32]Syscall
}

// frame is the saved state of a caller.
type frame struct {
	at   int
	kept [4]uint64
}

// NewMachine returns a machine that stops a program after limit compute units.
func NewMachine(p *Program, limit uint64) *Machine {
	return &Machine{
		program: p, stack: make([]byte, maxDepth*frameSize), heap: make([]byte, heapSize), limit: limit, syscalls: map[uint32]Syscall{},
	}
}

// Units returns the compute units of the last run.
func (m *Machine) Units() uint64 { return m.units }

// Run runs the program on an input, which the program may modify, and returns its result. Stack and
// heap keep the contents of an earlier run. The chain clears them, but a program must not rely on
// it here.
func (m *Machine) Run(input []byte) (uint64, error) {
	m.input, m.units, m.fault, m.calls = input, 0, nil, m.calls[:0]
	m.r = [11]uint64{1: inputAddress, 10: stackAddress + frameSize}
	text := m.program.text
	for at := m.program.entry; ; at++ {
		if at < 0 || at >= len(text) {
			return 0, fmt.Errorf("instruction %d: %w", at, errAccess)
		}
		if m.units++; m.units > m.limit {
			return 0, fmt.Errorf("instruction %d: %w", at, ErrUnits)
		}
		next, ended := m.step(&text[at], at)
		if m.fault != nil {
			return 0, fmt.Errorf("instruction %d: %w", at, m.fault)
		}
		if ended {
			return m.r[0], nil
		}
		at = next
	}
}

// step executes one instruction and returns the index of the next instruction minus 1.
func (m *Machine) step(i *instruction, at int) (next int, ended bool) {
	if i.destination > 10 || i.source > 10 {
		m.fault = ErrInstruction
		return at, false
	}
	switch i.op & 7 {
	case 0:
		return m.loadWide(i, at), false
	case 1:
		m.load(i)
	case 2, 3:
		m.store(i)
	case 4, 7:
		m.arithmetic(i)
	case 5:
		return m.jump(i, at)
	default:
		m.fault = ErrInstruction
	}
	return at, false
}

// loadWide executes the only instruction with two slots.
func (m *Machine) loadWide(i *instruction, at int) int {
	if i.op != 0x18 || at+1 >= len(m.program.text) {
		m.fault = ErrInstruction
		return at
	}
	m.r[i.destination] = uint64(uint32(i.immediate)) | uint64(uint32(m.program.text[at+1].immediate))<<32
	return at + 1
}

// sizes are the widths of loads and stores, by bits 3 and 4 of the operation.
var sizes = [4]uint64{4, 2, 1, 8}

func (m *Machine) load(i *instruction) {
	if i.op&0xe0 != 0x60 {
		m.fault = ErrInstruction
		return
	}
	size := sizes[i.op>>3&3]
	b := m.memory(m.r[i.source]+uint64(int64(i.offset)), size, false)
	if b == nil {
		return
	}
	switch size {
	case 1:
		m.r[i.destination] = uint64(b[0])
	case 2:
		m.r[i.destination] = uint64(le.Uint16(b))
	case 4:
		m.r[i.destination] = uint64(le.Uint32(b))
	default:
		m.r[i.destination] = le.Uint64(b)
	}
}

func (m *Machine) store(i *instruction) {
	if i.op&0xe0 != 0x60 {
		m.fault = ErrInstruction
		return
	}
	value := m.r[i.source]
	if i.op&7 == 2 {
		value = uint64(int64(i.immediate))
	}
	size := sizes[i.op>>3&3]
	b := m.memory(m.r[i.destination]+uint64(int64(i.offset)), size, true)
	if b == nil {
		return
	}
	switch size {
	case 1:
		b[0] = byte(value)
	case 2:
		le.PutUint16(b, uint16(value))
	case 4:
		le.PutUint32(b, uint32(value))
	default:
		le.PutUint64(b, value)
	}
}

// memory returns n bytes at an address, or nil with a fault if the access is invalid. Zero bytes
// are valid at every address.
func (m *Machine) memory(address, n uint64, write bool) []byte {
	if n == 0 {
		return []byte{}
	}
	var region []byte
	switch address >> 32 {
	case 0:
		if !write {
			region = m.program.data
		}
	case 2:
		region = m.stack
	case 3:
		region = m.heap
	case 4:
		region = m.input
	}
	at := address & 0xffffffff
	if n > uint64(len(region)) || at > uint64(len(region))-n {
		m.fault = fmt.Errorf("%w: %d bytes at %#x", errAccess, n, address)
		return nil
	}
	return region[at : at+n : at+n]
}
