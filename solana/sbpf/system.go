package sbpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
)

// The system calls that the coordinator needs.
var (
	callMemset  = SyscallID("sol_memset_")
	callMemmove = SyscallID("sol_memmove_")
	callMemcmp  = SyscallID("sol_memcmp_")
	callSHA256  = SyscallID("sol_sha256")
)

// What system calls cost, in compute units, on the chain.
const (
	memoryUnits   = 10  // at least
	bytesPerUnit  = 250 // of memory operations
	sha256Units   = 85
	hashedPerUnit = 2
	maxPieces     = 20_000
)

// system does a system call with the arguments in the first registers.
func (m *Machine) system(id uint32) uint64 {
	switch id {
	case callMemset:
		m.units += max(memoryUnits, m.r[3]/bytesPerUnit)
		b := m.memory(m.r[1], m.r[3], true)
		for i := range b {
			b[i] = byte(m.r[2])
		}
	case callMemmove:
		m.units += max(memoryUnits, m.r[3]/bytesPerUnit)
		to, from := m.memory(m.r[1], m.r[3], true), m.memory(m.r[2], m.r[3], false)
		if m.fault == nil {
			copy(to, from)
		}
	case callMemcmp:
		m.units += max(memoryUnits, m.r[3]/bytesPerUnit)
		a, b, result := m.memory(m.r[1], m.r[3], false), m.memory(m.r[2], m.r[3], false), m.memory(m.r[4], 4, true)
		if m.fault == nil {
			le.PutUint32(result, uint32(int32(bytes.Compare(a, b))))
		}
	case callSHA256:
		m.sha256()
	default:
		m.fault = fmt.Errorf("%w: %#x", ErrSyscall, id)
	}
	return 0
}

func (m *Machine) sha256() {
	m.units += sha256Units
	if m.r[2] > maxPieces {
		m.fault = fmt.Errorf("%w: a hash of %d pieces", ErrAccess, m.r[2])
		return
	}
	hash := sha256.New()
	for pieces := m.memory(m.r[1], 16*m.r[2], false); len(pieces) > 0; pieces = pieces[16:] {
		size := le.Uint64(pieces[8:])
		hash.Write(m.memory(le.Uint64(pieces), size, false))
		m.units += max(memoryUnits, size/hashedPerUnit)
	}
	if digest := m.memory(m.r[3], sha256.Size, true); m.fault == nil {
		hash.Sum(digest[:0])
	}
}
