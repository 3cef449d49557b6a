package sbpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
)

// System calls that only access memory.
var (
	callMemcpy  = SyscallID("sol_memcpy_")
	callMemset  = SyscallID("sol_memset_")
	callMemmove = SyscallID("sol_memmove_")
	callMemcmp  = SyscallID("sol_memcmp_")
	callSHA256  = SyscallID("sol_sha256")
)

// Costs of system calls on the chain, in compute units.
const (
	memoryUnits   = 10  // minimum
	bytesPerUnit  = 250 // of memory operations
	sha256Units   = 85
	hashedPerUnit = 2

	// MaxPieces is the maximum number of slices in a system call.
	MaxPieces = 20_000
)

// PiecesError is the number of slices of a hash that exceeded MaxPieces.
type PiecesError uint64

func (e PiecesError) Error() string {
	return fmt.Sprintf("hash of %d slices, at most %d", uint64(e), MaxPieces)
}

// Syscall executes a system call and returns its result. It reads arguments with Argument and the
// memory that they point to with Memory, and pays with Charge.
type Syscall func(m *Machine) uint64

// Handle registers a system call.
func (m *Machine) Handle(name string, call Syscall) { m.syscalls[SyscallID(name)] = call }

// Argument returns the n-th argument of the current system call, from 1 to 5.
func (m *Machine) Argument(n int) uint64 { return m.r[n] }

// Left returns the remaining compute units.
func (m *Machine) Left() uint64 { return m.limit - min(m.units, m.limit) }

// Fail stops the program.
func (m *Machine) Fail(err error) { m.fault = err }

// Failed reports whether the program was stopped.
func (m *Machine) Failed() bool { return m.fault != nil }

// Charge takes compute units. It stops the program if too few are left.
func (m *Machine) Charge(units uint64) {
	if m.fault != nil {
		return
	}
	if units > m.Left() {
		m.units, m.fault = m.limit, ErrCharge
		return
	}
	m.units += units
}

// Memory returns bytes of the program's memory. It stops the program and returns nil if the access
// is invalid.
func (m *Machine) Memory(address, n uint64, write bool) []byte {
	if m.fault != nil {
		return nil
	}
	return m.memory(address, n, write)
}

// Aligned is Memory for 8-byte aligned numbers.
func (m *Machine) Aligned(address, n uint64, write bool) []byte {
	b := m.Memory(address, n, write)
	if m.fault == nil && n > 0 && address%8 != 0 {
		m.fault = fmt.Errorf("%w: %#x", ErrAlign, address)
		return nil
	}
	return b
}

// Each calls do with each of the n slices in an array of (pointer, length) pairs, until something
// stops the program.
func (m *Machine) Each(address, n uint64, do func([]byte)) {
	if m.fault != nil {
		return
	}
	if n > MaxPieces {
		m.fault = fmt.Errorf("%w: %d slices", errAccess, n)
		return
	}
	for array := m.Aligned(address, 16*n, false); len(array) > 0; array = array[16:] {
		piece := m.Memory(le.Uint64(array), le.Uint64(array[8:]), false)
		if m.fault != nil {
			return
		}
		do(piece)
	}
}

// system executes a system call with the arguments in the first registers.
func (m *Machine) system(id uint32) uint64 {
	switch id {
	case callMemset:
		m.Charge(max(memoryUnits, m.r[3]/bytesPerUnit))
		b := m.Memory(m.r[1], m.r[3], true)
		for i := range b {
			b[i] = byte(m.r[2])
		}
	case callMemcpy, callMemmove:
		m.Charge(max(memoryUnits, m.r[3]/bytesPerUnit))
		if id == callMemcpy && (m.r[1]-m.r[2] < m.r[3] || m.r[2]-m.r[1] < m.r[3]) {
			m.fault = ErrOverlap
		}
		to, from := m.Memory(m.r[1], m.r[3], true), m.Memory(m.r[2], m.r[3], false)
		if m.fault == nil {
			copy(to, from)
		}
	case callMemcmp:
		m.Charge(max(memoryUnits, m.r[3]/bytesPerUnit))
		a, b, result := m.Memory(m.r[1], m.r[3], false), m.Memory(m.r[2], m.r[3], false), m.Memory(m.r[4], 4, true)
		if m.fault == nil {
			le.PutUint32(result, uint32(int32(bytes.Compare(a, b))))
		}
	case callSHA256:
		m.sha256()
	default:
		if call, found := m.syscalls[id]; found {
			return call(m)
		}
		m.fault = fmt.Errorf("%w: %#x", ErrSyscall, id)
	}
	return 0
}

func (m *Machine) sha256() {
	if m.r[2] > MaxPieces {
		m.fault = PiecesError(m.r[2])
		return
	}
	m.Charge(sha256Units)
	digest, hash := m.Memory(m.r[3], sha256.Size, true), sha256.New()
	m.Each(m.r[1], m.r[2], func(piece []byte) {
		if m.Charge(max(memoryUnits, uint64(len(piece))/hashedPerUnit)); m.fault == nil {
			hash.Write(piece)
		}
	})
	if m.fault == nil {
		hash.Sum(digest[:0])
	}
}
