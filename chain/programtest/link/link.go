package link

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/chain/sbpf"
)

// entryName is the entry function of a program.
const entryName = "entrypoint"

type global struct {
	object *object
	symbol elf.Symbol
}

type linker struct {
	text, data segment
	objects    []*object
	globals    map[string]global
}

// Link links objects into a program. Its output depends only on the objects and their order.
func Link(objects []Object) ([]byte, error) {
	l := linker{text: segment{address: sbpf.TextAddress}, globals: map[string]global{}}
	for _, o := range objects {
		if err := l.read(o); err != nil {
			return nil, err
		}
	}
	l.data.add(nil)
	for _, o := range l.objects {
		if err := l.relocate(o); err != nil {
			return nil, err
		}
	}
	if err := check(l.text.bytes); err != nil {
		return nil, err
	}
	entry, ok := l.globals[entryName]
	if !ok {
		return nil, fmt.Errorf("link: no object has the function %s, the start of a program", entryName)
	}
	begin, _, err := l.resolve(entry.object, entry.symbol)
	if err != nil {
		return nil, err
	}
	if begin.in != &l.text {
		return nil, fmt.Errorf("link: %s is not a function", entryName)
	}
	if begin.at%8 != 0 || begin.at/8 >= uint64(len(l.text.bytes)/8) {
		return nil, fmt.Errorf("link: %s at offset %d of %d bytes, want an instruction", entryName, begin.at, len(l.text.bytes))
	}
	return l.file(begin.at), nil
}

// resolve returns the position of a symbol, and whether any object defines it.
func (l *linker) resolve(o *object, symbol elf.Symbol) (place, bool, error) {
	if symbol.Section == elf.SHN_UNDEF {
		found, ok := l.globals[symbol.Name]
		if !ok {
			return place{}, false, nil
		}
		o, symbol = found.object, found.symbol
	}
	section, ok := o.places[symbol.Section]
	if !ok {
		return place{}, false, o.errorf("%s is in a section that a program cannot have", symbol.Name)
	}
	return place{section.in, section.at + symbol.Value}, true, nil
}

// relocate puts addresses into an object's sections.
func (l *linker) relocate(o *object) error {
	for _, section := range o.file.Sections {
		target, ok := o.places[elf.SectionIndex(section.Info)]
		if section.Type != elf.SHT_REL || !ok {
			continue
		}
		entries, err := section.Data()
		if err != nil {
			return o.errorf("section %s: %w", section.Name, err)
		}
		for ; len(entries) >= 16; entries = entries[16:] {
			at, info := le.Uint64(entries)+target.at, le.Uint64(entries[8:])
			size := uint64(len(target.in.bytes))
			if info>>32 == 0 || info>>32 > uint64(len(o.symbols)) || size < 8 || at > size-8 {
				return o.errorf("section %s: a relocation has no target", section.Name)
			}
			if err := l.put(o, o.symbols[info>>32-1], uint32(info), target.in, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kinds of relocations of BPF.
const (
	wideAddress = 1  // in an instruction with two slots
	dataAddress = 2  // in constants
	callAddress = 10 // relative, or the number of a system call
)

// put performs one relocation. The addend is stored at the location of the address.
func (l *linker) put(o *object, symbol elf.Symbol, kind uint32, in *segment, at uint64) error {
	to, defined, err := l.resolve(o, symbol)
	if err != nil {
		return err
	}
	b := in.bytes[at:]
	switch {
	case kind == callAddress && !defined:
		if !systemCalls[symbol.Name] {
			return o.errorf("%s is not in any object and not a system call", symbol.Name)
		}
		b[1] &= 0x0f
		le.PutUint32(b[4:], sbpf.SyscallID(symbol.Name))
	case !defined:
		return o.errorf("%s is not in any object", symbol.Name)
	case kind == callAddress:
		if to.in != &l.text {
			return o.errorf("%s is called but is not a function", symbol.Name)
		}
		target := int64(to.at) + (int64(int32(le.Uint32(b[4:])))+1)*8
		b[1] = b[1]&0x0f | 0x10
		le.PutUint32(b[4:], uint32((target-int64(at))/8-1))
	case kind == wideAddress && len(b) >= 16:
		address := to.in.address + to.at + uint64(le.Uint32(b[4:]))
		le.PutUint32(b[4:], uint32(address))
		le.PutUint32(b[12:], uint32(address>>32))
	case kind == dataAddress:
		le.PutUint64(b, to.in.address+to.at+le.Uint64(b))
	default:
		return o.errorf("relocation of %[2]s has the unknown kind %[1]d", kind, symbol.Name)
	}
	return nil
}

// file writes the program: one header, a segment of constants if there are any, and the text. It
// has no sections, no symbols and no relocations.
func (l *linker) file(entry uint64) []byte {
	type segmentHeader struct {
		address uint64
		flags   elf.ProgFlag
		bytes   []byte
	}
	segments := []segmentHeader{{l.text.address, elf.PF_X, l.text.bytes}}
	if len(l.data.bytes) > 0 {
		segments = append([]segmentHeader{{l.data.address, elf.PF_R, l.data.bytes}}, segments...)
	}
	const headerSize, segmentSize, version = 64, 56, 3
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, le, v) } // a buffer never fails
	write(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_DYN),
		Machine: uint16(elf.EM_BPF), Version: uint32(elf.EV_CURRENT), Entry: l.text.address + entry, Phoff: headerSize, Flags: version,
		Ehsize: headerSize, Phentsize: segmentSize, Phnum: uint16(len(segments)),
	})
	at := uint64(headerSize + segmentSize*len(segments))
	for _, s := range segments {
		size := uint64(len(s.bytes))
		write(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(s.flags), Off: at, Vaddr: s.address, Paddr: s.address, Filesz: size, Memsz: size, Align: 8})
		at += size
	}
	for _, s := range segments {
		b.Write(s.bytes)
	}
	return b.Bytes()
}
