package link

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/sbpf"
)

// section is a section of an object that a test creates.
type section struct {
	name  string
	kind  elf.SectionType
	flags elf.SectionFlag
	data  []byte
	info  uint32
}

// symbol is a symbol in the section with the given number, or an undefined symbol if the number is
// 0.
type symbol struct {
	name    string
	section uint16
	value   uint64
}

// makeObject writes an object with the sections from number 1 on, then its symbols, all of them
// global.
func makeObject(sections []section, symbols []symbol) []byte {
	le := binary.LittleEndian
	names, strs := []byte{0}, []byte{0}
	table := make([]byte, elf.Sym64Size)
	for _, s := range symbols {
		entry := le.AppendUint32(nil, uint32(len(strs)))
		entry = append(entry, byte(elf.STB_GLOBAL)<<4, 0)
		entry = le.AppendUint16(entry, s.section)
		table = append(table, le.AppendUint64(le.AppendUint64(entry, s.value), 0)...)
		strs = append(append(strs, s.name...), 0)
	}
	symtab := len(sections) + 1
	all := append(sections, section{".symtab", elf.SHT_SYMTAB, 0, table, 1}, section{".strtab", elf.SHT_STRTAB, 0, strs, 0}, section{".shstrtab", elf.SHT_STRTAB, 0, nil, 0})
	var body bytes.Buffer
	headers := make([]byte, 64)
	for i := range all {
		s := &all[i]
		name := len(names)
		names = append(append(names, s.name...), 0)
		if s.name == ".shstrtab" {
			s.data = names
		}
		link, entry := uint32(0), uint64(0)
		switch s.kind {
		case elf.SHT_SYMTAB:
			link, entry = uint32(symtab+1), elf.Sym64Size
		case elf.SHT_REL:
			link, entry = uint32(symtab), 16
		}
		var b bytes.Buffer
		_ = binary.Write(&b, le, elf.Section64{Name: uint32(name), Type: uint32(s.kind), Flags: uint64(s.flags), Off: uint64(64 + body.Len()), Size: uint64(len(s.data)), Link: link, Info: s.info, Addralign: 8, Entsize: entry})
		headers = append(headers, b.Bytes()...)
		body.Write(s.data)
	}
	var file bytes.Buffer
	_ = binary.Write(&file, le, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: 1, Shoff: uint64(64 + body.Len()),
		Ehsize: 64, Shentsize: 64, Shnum: uint16(len(all) + 1), Shstrndx: uint16(len(all)),
	})
	file.Write(body.Bytes())
	file.Write(headers)
	return file.Bytes()
}

// code returns a section of instructions.
func code(b ...byte) section {
	return section{".text", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_EXECINSTR, b, 0}
}

func relocation(at uint64, symbol, kind uint32) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), uint64(symbol)<<32|uint64(kind))
}

var (
	exit    = []byte{0x95, 0, 0, 0, 0, 0, 0, 0}
	seven   = []byte{0xb7, 0, 0, 0, 7, 0, 0, 0}
	call    = []byte{0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff}
	address = []byte{0x18, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // one byte after a symbol
	load    = []byte{0x71, 0x10, 0, 0, 0, 0, 0, 0}
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestLink links two objects: one calls the other, which reads a constant.
func TestLink(t *testing.T) {
	caller := makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(0, 2, callAddress), 1}},
		[]symbol{{entryName, 1, 0}, {"other", 0, 0}})
	other := makeObject([]section{code(join(address, load, exit)...), {".rodata", elf.SHT_PROGBITS, elf.SHF_ALLOC, []byte{3, 4, 5}, 0}, {".rel.text", elf.SHT_REL, 0, relocation(0, 2, wideAddress), 1}},
		[]symbol{{"other", 1, 0}, {"constant", 2, 0}})
	program, err := Link([]Object{{"caller", caller}, {"other", other}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := sbpf.Load(program)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sbpf.NewMachine(p, 100).Run(nil); got != 4 || err != nil {
		t.Errorf("%d %v, want 4", got, err)
	}
	if flags := binary.LittleEndian.Uint32(program[48:]); flags != 3 {
		t.Errorf("version %d, want 3", flags)
	}
}

func TestLinkRefuses(t *testing.T) {
	whole := []symbol{{entryName, 1, 0}}
	calls := func(name string) []byte {
		return makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(0, 2, callAddress), 1}}, []symbol{{entryName, 1, 0}, {name, 0, 0}})
	}
	good := makeObject([]section{code(join(seven, exit)...)}, whole)
	if _, err := Link([]Object{{"good", good}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Link([]Object{{"system call", calls("sol_sha256")}}); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][][]byte{
		"no object":      {[]byte("text")},
		"unknown name":   {calls("sol_sha257")},
		"twice":          {good, good},
		"no entry":       {makeObject([]section{code(exit...)}, []symbol{{"main", 1, 0}})},
		"entry outside":  {makeObject([]section{code(exit...)}, []symbol{{entryName, 1, 8}})},
		"entry inside":   {makeObject([]section{code(exit...)}, []symbol{{entryName, 1, 4}})},
		"a variable":     {makeObject([]section{code(exit...), {".data", elf.SHT_PROGBITS, elf.SHF_ALLOC | elf.SHF_WRITE, []byte{1}, 0}}, whole)},
		"32 bits":        {makeObject([]section{code(join([]byte{0x0c, 0, 0, 0, 0, 0, 0, 0}, exit)...)}, whole)},
		"an atomic":      {makeObject([]section{code(join([]byte{0xdb, 0, 0, 0, 0, 0, 0, 0}, exit)...)}, whole)},
		"a signed load":  {makeObject([]section{code(join([]byte{0x91, 0, 0, 0, 0, 0, 0, 0}, exit)...)}, whole)},
		"no such symbol": {makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(0, 9, callAddress), 1}}, whole)},
		"outside":        {makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(1<<63, 1, callAddress), 1}}, whole)},
		"unknown kind":   {makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(0, 1, 77), 1}}, whole)},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []Object
			for _, b := range files {
				objects = append(objects, Object{"object", b})
			}
			_, err := Link(objects)
			golden.Message(t, "error", err)
		})
	}
}

// FuzzLink checks that an object is linked or refused, and that a linked program can be loaded.
func FuzzLink(f *testing.F) {
	f.Add(makeObject([]section{code(join(seven, exit)...)}, []symbol{{entryName, 1, 0}}))
	f.Add(makeObject([]section{code(join(call, exit)...), {".rel.text", elf.SHT_REL, 0, relocation(0, 1, callAddress), 1}}, []symbol{{entryName, 1, 0}}))
	fuzztest.Run(f, func(t *testing.T, object []byte) {
		program, err := Link([]Object{{"object", object}})
		if err != nil {
			return
		}
		if _, err := sbpf.Load(program); err != nil {
			t.Errorf("linked but cannot be loaded: %v", err)
		}
	})
}
