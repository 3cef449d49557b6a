package link

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
)

var le = binary.LittleEndian

// maxObjectSize limits the size of an object in bytes.
const maxObjectSize = 4 << 20

// Object is the compiler's output for one source.
type Object struct {
	Name  string // for errors
	Bytes []byte
}

// segment is a part of the program during linking.
type segment struct {
	bytes   []byte
	address uint64
}

// add appends a section at a multiple of 8 and returns its offset.
func (s *segment) add(b []byte) uint64 {
	for len(s.bytes)%8 != 0 {
		s.bytes = append(s.bytes, 0)
	}
	at := uint64(len(s.bytes))
	s.bytes = append(s.bytes, b...)
	return at
}

// place is the position of a section or a symbol.
type place struct {
	in *segment
	at uint64
}

// object is an object that is being linked.
type object struct {
	name    string
	file    *elf.File
	symbols []elf.Symbol
	places  map[elf.SectionIndex]place
}

func (o *object) errorf(format string, arguments ...any) error {
	return fmt.Errorf("link %s: %w", o.name, fmt.Errorf(format, arguments...))
}

// read adds an object's sections to the program.
func (l *linker) read(from Object) error {
	o := &object{name: from.Name, places: map[elf.SectionIndex]place{}}
	if len(from.Bytes) > maxObjectSize {
		return o.errorf("%d bytes, the limit is %d", len(from.Bytes), maxObjectSize)
	}
	file, err := elf.NewFile(bytes.NewReader(from.Bytes))
	if err != nil {
		return o.errorf("%w", err)
	}
	if file.Machine != elf.EM_BPF || file.Type != elf.ET_REL || file.Data != elf.ELFDATA2LSB {
		return o.errorf("is a %s for %s: compile it with clang -target bpfel -mcpu=v2 -c", file.Type, file.Machine)
	}
	for _, section := range file.Sections {
		if section.Flags&elf.SHF_COMPRESSED != 0 || section.Size > maxObjectSize {
			return o.errorf("section %s is compressed or too large (%d bytes): compile it with -gz=none", section.Name, section.Size)
		}
	}
	o.file = file
	if o.symbols, err = file.Symbols(); err != nil {
		return o.errorf("%w", err)
	}
	for i, section := range file.Sections {
		if section.Flags&elf.SHF_ALLOC == 0 || section.Size == 0 || strings.HasPrefix(section.Name, ".eh_frame") {
			continue
		}
		if section.Type == elf.SHT_NOBITS || section.Flags&elf.SHF_WRITE != 0 && !strings.HasPrefix(section.Name, ".data.rel.ro") {
			return o.errorf("section %s has variables, which a program cannot have: make them constant or keep them in an account", section.Name)
		}
		if section.Addralign > 8 {
			return o.errorf("section %s needs an alignment of %d bytes, want at most 8", section.Name, section.Addralign)
		}
		data, err := section.Data()
		if err != nil {
			return o.errorf("section %s: %w", section.Name, err)
		}
		into := &l.data
		if section.Flags&elf.SHF_EXECINSTR != 0 {
			into = &l.text
		}
		o.places[elf.SectionIndex(i)] = place{into, into.add(data)}
	}
	l.objects = append(l.objects, o)
	return l.export(o)
}

// export makes an object's symbols available to other objects.
func (l *linker) export(o *object) error {
	for _, symbol := range o.symbols {
		if elf.ST_BIND(symbol.Info) == elf.STB_LOCAL || symbol.Section == elf.SHN_UNDEF || symbol.Name == "" {
			continue
		}
		if other, ok := l.globals[symbol.Name]; ok {
			return o.errorf("%s is also in object %s", symbol.Name, other.object.name)
		}
		l.globals[symbol.Name] = global{o, symbol}
	}
	return nil
}
