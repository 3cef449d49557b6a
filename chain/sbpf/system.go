package sbpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
)

// The system calls that only work on memory.
var (
	callMemcpy  = SyscallID("sol_memcpy_")
	callMemset  = SyscallID("sol_memset_")
	callMemmove = SyscallID("sol_memmove_")
	callMemcmp  = SyscallID("sol_memcmp_")
	callSHA256  = SyscallID("sol_sha256")
)

// Costs of system calls on the chain, in compute units.
const (
	memoryUnits   = 10  // at least
	bytesPerUnit  = 250 // of memory operations
	sha256Units   = 85
	hashedPerUnit = 2

	// MaxPieces is how many slices a system call takes.
	MaxPieces = 20_000
)

// PiecesError is how many slices a hash was to be of, which are too many.
type PiecesError uint64

func (e PiecesError) Error() string {
	return fmt.Sprintf("hash of %d slices, at most %d", uint64(e), MaxPieces)
}

// Syscall does a system call and returns its result. It finds its arguments by Argument and what
// they point at by Memory, and pays by Charge.
type Syscall func(m *Machine) uint64

// Handle gives programs a system call.
func (m *Machine) Handle(name string, call Syscall) { m.syscalls[SyscallID(name)] = call }

// Argument returns an argument of the system call at work, from 1 to 5.
func (m *Machine) Argument(n int) uint64 { return m.r[n] }

// Left returns how many compute units are left.
func (m *Machine) Left() uint64 { return m.limit - min(m.units, m.limit) }

// Fail stops the program.
func (m *Machine) Fail(err error) { m.fault = err }

// Failed says that something has stopped the program.
func (m *Machine) Failed() bool { return m.fault != nil }

// Charge takes compute units, and stops the program where they are not left.
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

// Memory returns bytes of the program, or nil when it may not be there, which stops it.
func (m *Machine) Memory(address, n uint64, write bool) []byte {
	if m.fault != nil {
		return nil
	}
	return m.memory(address, n, write)
}

// Aligned is Memory of numbers of eight bytes.
func (m *Machine) Aligned(address, n uint64, write bool) []byte {
	b := m.Memory(address, n, write)
	if m.fault == nil && n > 0 && address%8 != 0 {
		m.fault = fmt.Errorf("%w: %#x", ErrAlign, address)
		return nil
	}
	return b
}

// Each calls do with what each of n slices (pointer, length) in an array points at, until something
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

// system does a system call with the arguments in the first registers.
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
