package runtime

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/sbpf"
)

// Costs of system calls, in compute units.
const (
	baseUnits    = 100
	memoryUnits  = 10
	bytesPerUnit = 250
	maxArray     = 1 << 32 // elements: more than any memory has
)

// Results of sol_get_sysvar.
const (
	sysvarOutOfBounds = 1
	sysvarNotFound    = 2
)

// handle registers the system calls that access the chain.
func (c *call) handle(m *sbpf.Machine) {
	for name, call := range map[string]sbpf.Syscall{
		"abort":                  c.abort,
		"sol_log_":               c.logText,
		"sol_log_64_":            c.logNumbers,
		"sol_log_pubkey":         c.logKey,
		"sol_log_compute_units_": c.logUnits,
		"sol_log_data":           c.logData,
		"sol_set_return_data":    c.setReturn,
		"sol_get_clock_sysvar":   func(m *sbpf.Machine) uint64 { return c.sysvar(m, c.sysvars.Clock.Bytes(), clockSize) },
		"sol_get_rent_sysvar":    func(m *sbpf.Machine) uint64 { return c.sysvar(m, c.sysvars.Rent.Bytes(), rentCharged) },
		"sol_get_sysvar":         c.anySysvar,
	} {
		m.Handle(name, call)
	}
}

// rentCharged is the size in bytes that sol_get_rent_sysvar charges: the size of Rust's structure.
const rentCharged = 24

func (c *call) abort(m *sbpf.Machine) uint64 {
	m.Fail(sbpf.ErrAbort)
	return 0
}

func (c *call) logText(m *sbpf.Machine) uint64 {
	m.Charge(max(baseUnits, m.Argument(2)))
	if text := m.Memory(m.Argument(1), m.Argument(2), false); !m.Failed() {
		c.log("Program log: %s", strings.ToValidUTF8(string(text), "\ufffd"))
	}
	return 0
}

func (c *call) logNumbers(m *sbpf.Machine) uint64 {
	if m.Charge(baseUnits); !m.Failed() {
		c.log("Program log: %#x, %#x, %#x, %#x, %#x", m.Argument(1), m.Argument(2), m.Argument(3), m.Argument(4), m.Argument(5))
	}
	return 0
}

func (c *call) logKey(m *sbpf.Machine) uint64 {
	m.Charge(baseUnits)
	if key := m.Memory(m.Argument(1), 32, false); !m.Failed() {
		c.log("Program log: %s", base58.Encode(key))
	}
	return 0
}

func (c *call) logUnits(m *sbpf.Machine) uint64 {
	if m.Charge(baseUnits); !m.Failed() {
		c.log("Program consumption: %d units remaining", m.Left())
	}
	return 0
}

func (c *call) logData(m *sbpf.Machine) uint64 {
	m.Charge(baseUnits)
	address, n := m.Argument(1), m.Argument(2)
	if n >= 1<<59 && !m.Failed() {
		m.Fail(said("InvalidLength"))
	}
	m.Aligned(address, 16*min(n, maxArray), false) // the chain also checks this before it knows the cost of the slices
	m.Charge(baseUnits * min(n, maxArray))
	var slices [][]byte
	size := uint64(0)
	m.Each(address, n, func(piece []byte) {
		slices = append(slices, piece)
		size += uint64(len(piece))
	})
	if m.Charge(size); m.Failed() {
		return 0
	}
	var texts []string
	for _, s := range slices {
		c.Data = append(c.Data, append([]byte{}, s...))
		texts = append(texts, base64.StdEncoding.EncodeToString(s))
	}
	c.log("Program data: %s", strings.Join(texts, " "))
	return 0
}

func (c *call) setReturn(m *sbpf.Machine) uint64 {
	address, n := m.Argument(1), m.Argument(2)
	m.Charge(n/bytesPerUnit + baseUnits)
	if !m.Failed() && n > maxReturn {
		m.Fail(said(fmt.Sprintf("Return data too large (%d > %d)", n, maxReturn)))
	}
	if b := m.Memory(address, n, false); !m.Failed() {
		c.Return = append([]byte{}, b...)
	}
	return 0
}

// sysvar executes a system call for one sysvar.
func (c *call) sysvar(m *sbpf.Machine, value []byte, charged uint64) uint64 {
	m.Charge(baseUnits + charged)
	if to := m.Aligned(m.Argument(1), charged, true); !m.Failed() {
		clear(to[copy(to, value):])
	}
	return 0
}

// anySysvar executes sol_get_sysvar: address of the sysvar, destination, offset, length.
func (c *call) anySysvar(m *sbpf.Machine) uint64 {
	offset, n := m.Argument(3), m.Argument(4)
	m.Charge(baseUnits + max(memoryUnits, n/bytesPerUnit))
	to, address := m.Memory(m.Argument(2), n, true), m.Memory(m.Argument(1), 32, false)
	if m.Failed() {
		return 0
	}
	if offset+n < offset {
		m.Fail(ErrArithmeticOverflow)
		return 0
	}
	value, found := c.sysvarBytes[[32]byte(address)]
	if !found {
		value = c.sysvars.bytesOf([32]byte(address))
		c.sysvarBytes[[32]byte(address)] = value
	}
	switch {
	case value == nil:
		return sysvarNotFound
	case offset+n > uint64(len(value)):
		return sysvarOutOfBounds
	}
	copy(to, value[offset:])
	return 0
}
