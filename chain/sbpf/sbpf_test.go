package sbpf

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
)

func TestSyscallID(t *testing.T) {
	for name, want := range map[string]uint32{
		"sol_log_": 0x207559bd, "sol_memcpy_": 0x717cc4a3, "sol_sha256": 0x11f49d86, "sol_get_clock_sysvar": 0xd56b5fe9,
	} {
		if got := SyscallID(name); got != want {
			t.Errorf("%s: %#x, want %#x", name, got, want)
		}
	}
}

// ins encodes an instruction.
func ins(op, destination, source byte, offset int16, immediate int32) instruction {
	return instruction{op, destination, source, offset, immediate}
}

const (
	moveImmediate = 0xb7
	moveRegister  = 0xbf
	storeWord     = 0x7b
	loadByte      = 0x71
)

var exit = ins(opExit, 0, 0, 0, 0)

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		text []instruction
		want uint64
		err  error
	}{
		"result":               {text: []instruction{ins(moveImmediate, 0, 0, 0, 7), exit}, want: 7},
		"immediate has a sign": {text: []instruction{ins(moveImmediate, 0, 0, 0, -1), exit}, want: 1<<64 - 1},
		"wide":                 {text: []instruction{ins(0x18, 0, 0, 0, -2), ins(0, 0, 0, 0, 5), exit}, want: 0x5_fffffffe},
		"multiply":             {text: []instruction{ins(moveImmediate, 0, 0, 0, -3), ins(0x27, 0, 0, 0, 5), exit}, want: ^uint64(14)},
		"sum of 32 bits":       {text: []instruction{ins(moveImmediate, 0, 0, 0, 1<<31-1), ins(0x04, 0, 0, 0, 1), exit}, want: 0xffffffff80000000},
		"shift with sign":      {text: []instruction{ins(moveImmediate, 0, 0, 0, -8), ins(0xc7, 0, 0, 0, 1), exit}, want: ^uint64(3)},
		"big endian":           {text: []instruction{ins(moveImmediate, 0, 0, 0, 0x1234), ins(0xdc, 0, 0, 0, 16), exit}, want: 0x3412},
		"stack":                {text: []instruction{ins(moveImmediate, 1, 0, 0, 0x1234), ins(storeWord, 10, 1, -8, 0), ins(loadByte, 0, 10, -7, 0), exit}, want: 0x12},
		"input":                {text: []instruction{ins(loadByte, 0, 1, 1, 0), exit}, want: 9},
		"behind the input":     {text: []instruction{ins(loadByte, 0, 1, 2, 0), exit}, err: errAccess},
		"before the input":     {text: []instruction{ins(loadByte, 0, 1, -1, 0), exit}, err: errAccess},
		"above the stack":      {text: []instruction{ins(moveRegister, 0, 10, 0, 0), ins(0x07, 0, 0, 0, maxDepth*frameSize), ins(loadByte, 0, 0, 0, 0), exit}, err: errAccess},
		"constants are read":   {text: []instruction{ins(moveImmediate, 2, 0, 0, 1), ins(loadByte, 0, 2, 0, 0), exit}, want: 0xcd},
		"and not written":      {text: []instruction{ins(moveImmediate, 2, 0, 0, 0), ins(0x73, 2, 0, 0, 0), exit}, err: errAccess},
		"jump":                 {text: []instruction{ins(moveImmediate, 0, 0, 0, -1), ins(0x25, 0, 0, 1, 5), ins(moveImmediate, 0, 0, 0, 1), exit}, want: 1<<64 - 1},
		"jump with sign":       {text: []instruction{ins(moveImmediate, 0, 0, 0, -1), ins(0x65, 0, 0, 1, 5), ins(moveImmediate, 0, 0, 0, 1), exit}, want: 1},
		"call keeps registers": {text: []instruction{ins(moveImmediate, 6, 0, 0, 3), ins(opCall, 0, 1, 0, 2), ins(moveRegister, 0, 6, 0, 0), exit, ins(moveImmediate, 6, 0, 0, 8), exit}, want: 3},
		"recursion":            {text: []instruction{ins(opCall, 0, 1, 0, -1), exit}, err: ErrDepth},
		"endless":              {text: []instruction{ins(0x05, 0, 0, -1, 0), exit}, err: ErrUnits},
		"no end":               {text: []instruction{ins(moveImmediate, 0, 0, 0, 1)}, err: errAccess},
		"division by zero":     {text: []instruction{ins(0x37, 0, 0, 0, 0), exit}, err: ErrDivision},
		"remainder of 32 bits": {text: []instruction{ins(0x94, 0, 0, 0, 0), exit}, err: ErrDivision},
		"no instruction":       {text: []instruction{ins(0xff, 0, 0, 0, 0), exit}, err: ErrInstruction},
		"no register":          {text: []instruction{ins(moveImmediate, 11, 0, 0, 0), exit}, err: ErrInstruction},
		"no system call":       {text: []instruction{ins(opCall, 0, 0, 0, 1), exit}, err: ErrSyscall},
		"half of a wide":       {text: []instruction{ins(0x18, 0, 0, 0, 0)}, err: ErrInstruction},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMachine(&Program{text: test.text, data: []byte{0xab, 0xcd}}, 10_000)
			got, err := m.Run([]byte{8, 9})
			if !errors.Is(err, test.err) || err == nil && got != test.want {
				t.Errorf("%#x %v, want %#x %v", got, err, test.want, test.err)
			}
		})
	}
}

// TestSystem calls every system call, and each with invalid memory.
func TestSystem(t *testing.T) {
	for name, test := range map[string]struct {
		id     uint32
		r      [4]uint64
		want   [2]byte
		units  uint64
		access bool
	}{
		"set":               {id: callMemset, r: [4]uint64{inputAddress + 1, 7, 1}, want: [2]byte{8, 7}, units: 10},
		"set past the end":  {id: callMemset, r: [4]uint64{inputAddress + 1, 7, 2}, access: true},
		"move":              {id: callMemmove, r: [4]uint64{inputAddress, inputAddress + 1, 1}, want: [2]byte{9, 9}, units: 10},
		"move from nowhere": {id: callMemmove, r: [4]uint64{inputAddress, 5 << 32, 1}, access: true},
		"compare nowhere":   {id: callMemcmp, r: [4]uint64{inputAddress, inputAddress, 1, inputAddress}, access: true},
		"hash of nowhere":   {id: callSHA256, r: [4]uint64{5 << 32, 1, inputAddress}, access: true},
		"hash past the end": {id: callSHA256, r: [4]uint64{inputAddress, MaxPieces, inputAddress}, access: true},
		"hash to nowhere":   {id: callSHA256, r: [4]uint64{inputAddress, 0, inputAddress}, access: true},
	} {
		t.Run(name, func(t *testing.T) {
			text := []instruction{}
			for i, v := range test.r {
				text = append(text, ins(0x18, byte(i+1), 0, 0, int32(uint32(v))), ins(0, 0, 0, 0, int32(uint32(v>>32))))
			}
			m := NewMachine(&Program{text: append(text, ins(opCall, 0, 0, 0, int32(test.id)), exit)}, 10_000)
			input := []byte{8, 9}
			_, err := m.Run(input)
			if errors.Is(err, errAccess) != test.access {
				t.Fatal(err)
			}
			if !test.access && ([2]byte(input) != test.want || m.Units() != test.units+6) {
				t.Errorf("%v with %d units, want %v with %d", input, m.Units(), test.want, test.units+6)
			}
		})
	}
}

// FuzzRun checks that an arbitrary program can only fail.
func FuzzRun(f *testing.F) {
	f.Add([]byte{moveImmediate, 0, 0, 0, 1, 0, 0, 0, opExit, 0, 0, 0, 0, 0, 0, 0})
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		m := NewMachine(&Program{text: instructions(text)}, 2000)
		if _, err := m.Run(make([]byte, 64)); err == nil && len(text) == 0 {
			t.Error("an empty program succeeds")
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	fuzztest.Run(f, func(t *testing.T, file []byte) {
		p, err := Load(file)
		if err == nil && (p.entry < 0 || p.entry >= len(p.text)) {
			t.Errorf("begins at %d of %d", p.entry, len(p.text))
		}
	})
}
