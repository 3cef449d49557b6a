package sbpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

var le = binary.LittleEndian

// MaxSize limits the size of a program's file in bytes.
const MaxSize = 1 << 20

// Addresses of a program's memory regions.
const (
	TextAddress  = 1 << 32
	stackAddress = 2 << 32
	inputAddress = 4 << 32
)

// instruction is an instruction of eight bytes.
type instruction struct {
	op, destination, source byte
	offset                  int16
	immediate               int32
}

// Program is the content of a program's file.
type Program struct {
	text  []instruction
	data  []byte // constants, from address 0 on
	entry int    // index in text
}

// Load parses a program in the format of package link.
func Load(file []byte) (*Program, error) {
	if len(file) > MaxSize {
		return nil, fmt.Errorf("program: %d bytes, the limit is %d", len(file), MaxSize)
	}
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_BPF {
		return nil, fmt.Errorf("program: wrong machine or format %s, %s, want 64-bit little-endian BPF; link it with package link", f.Machine, f.Data)
	}
	p := &Program{}
	for _, segment := range f.Progs {
		if segment.Filesz > uint64(len(file)) {
			return nil, fmt.Errorf("program: a segment of %d bytes in a file of %d", segment.Filesz, len(file))
		}
		b := make([]byte, segment.Filesz)
		if _, err := io.ReadFull(segment.Open(), b); err != nil {
			return nil, fmt.Errorf("program: segment at %#x: %w", segment.Vaddr, err)
		}
		switch segment.Vaddr {
		case 0:
			p.data = b
		case TextAddress:
			p.text = instructions(b)
		default:
			return nil, fmt.Errorf("program: segment at %#x, want 0 or %#x", segment.Vaddr, uint64(TextAddress))
		}
	}
	entry := f.Entry - TextAddress
	if f.Entry < TextAddress || entry%8 != 0 || entry/8 >= uint64(len(p.text)) {
		return nil, fmt.Errorf("program: the entry point %#x is not an instruction", f.Entry)
	}
	p.entry = int(entry / 8)
	return p, nil
}

func instructions(b []byte) []instruction {
	text := make([]instruction, 0, len(b)/8)
	for ; len(b) >= 8; b = b[8:] {
		text = append(text, instruction{
			op: b[0], destination: b[1] & 15, source: b[1] >> 4, offset: int16(le.Uint16(b[2:])), immediate: int32(le.Uint32(b[4:])),
		})
	}
	return text
}

// SyscallID returns the number of a system call: the 32-bit MurmurHash3 of its name.
func SyscallID(name string) uint32 {
	var hash uint32
	b := []byte(name)
	for ; len(b) >= 4; b = b[4:] {
		hash ^= bits.RotateLeft32(le.Uint32(b)*0xcc9e2d51, 15) * 0x1b873593
		hash = bits.RotateLeft32(hash, 13)*5 + 0xe6546b64
	}
	var tail uint32
	for i := len(b) - 1; i >= 0; i-- {
		tail = tail<<8 | uint32(b[i])
	}
	hash ^= bits.RotateLeft32(tail*0xcc9e2d51, 15) * 0x1b873593
	hash ^= uint32(len(name))
	hash = (hash ^ hash>>16) * 0x85ebca6b
	hash = (hash ^ hash>>13) * 0xc2b2ae35
	return hash ^ hash>>16
}
