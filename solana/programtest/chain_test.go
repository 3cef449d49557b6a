package programtest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/solana/layout"
	"github.com/psyche-go/psyche/solana/sbpf"
	"github.com/psyche-go/psyche/solana/sbpf/link"
)

// chainFlags make objects that package link takes: no 32-bit arithmetic (-mcpu=v2), and frames
// that the chain has room for.
var chainFlags = []string{
	"-target", "bpfel", "-mcpu=v2", "-O2", "-std=c11", "-ffreestanding", "-fno-builtin", "-fno-jump-tables", "-fno-unwind-tables",
	"-Wall", "-Wextra", "-Werror", "-mllvm", "-bpf-stack-size=4096", "-I", sources,
}

// unitLimit is what no operation may take, of the 1,400,000 compute units that a transaction has:
// a tick that takes more would stop a run for ever.
const unitLimit = 600_000

// buildProgram compiles and links the rules for the chain.
func buildProgram(t *testing.T) []byte {
	t.Helper()
	name := os.Getenv("CLANG")
	if name == "" {
		name = "clang-19"
	}
	clang, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no compiler for the chain: install clang-19 or name one in CLANG: %v", err)
	}
	folder := t.TempDir()
	paths := append(chainSources(t), filepath.Join("testdata", "entry.c"))
	var objects []link.Object
	for _, path := range paths {
		object := filepath.Join(folder, filepath.Base(path)+".o")
		run(t, clang, append(slices.Clone(chainFlags), "-c", path, "-o", object)...)
		b, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, link.Object{Name: filepath.Base(path), Bytes: b})
	}
	program, err := link.Link(objects)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func chainSources(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(sources, "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		return filepath.Base(path) == "native.c" || filepath.Base(path) == "sha256.c"
	})
}

// Where the parts of an input lie.
const (
	inputSize   = 8 + 32 + 3*8
	inputNumber = inputSize + 8
	inputState  = inputNumber + 8
	inputBody   = inputState + layout.Size
	maxBody     = 1 << 15
)

// chain is the rules on the chain's machine.
type chain struct {
	machine *sbpf.Machine
	input   []byte
	before  []byte
	units   map[string]uint64 // most of each kind of operation
}

func newChain(t *testing.T, program []byte) *chain {
	t.Helper()
	p, err := sbpf.Load(program)
	if err != nil {
		t.Fatal(err)
	}
	return &chain{
		machine: sbpf.NewMachine(p, 1_400_000), input: make([]byte, inputBody+maxBody), before: make([]byte, layout.Size), units: map[string]uint64{},
	}
}

func (c *chain) state() []byte { return c.input[inputState:inputBody] }

func (c *chain) do(o operation) (answer, error) {
	copy(c.before, c.state())
	switch o.kind {
	case opGenesis:
		clear(c.state())
	case opLoad:
		copy(c.state(), o.body)
		return answer{changed: c.changed()}, nil
	}
	b := append(le.AppendUint64(c.input[:0], o.kind), o.from[:]...)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, o.nonce), o.now), o.seed)
	le.AppendUint64(le.AppendUint64(b, uint64(len(o.body))), 0)
	copy(c.input[inputBody:], o.body)
	result, err := c.machine.Run(c.input[:inputBody+len(o.body)]) // nothing behind the body can be read
	c.note(o, c.machine.Units())
	return answer{result: result, number: le.Uint64(c.input[inputNumber:]), changed: c.changed()}, err
}

// note keeps the most that an operation took: for ticks by the phases before and after, which are
// at the same place of every account.
func (c *chain) note(o operation, units uint64) {
	const runState = 12
	name := map[uint64]string{opGenesis: "genesis", opDue: "due"}[o.kind]
	switch {
	case o.kind == opTick:
		name = fmt.Sprintf("tick %s to %s", coordinator.RunState(c.before[runState]), coordinator.RunState(c.state()[runState]))
	case o.kind == opApply && len(o.body) > 0:
		name = fmt.Sprintf("action of kind %d", o.body[0])
	}
	c.units[name] = max(c.units[name], units)
}

func (c *chain) changed() int {
	if bytes.Equal(c.before, c.state()) {
		return 0
	}
	return 1
}

// TestChain compares Go with the program as it runs on the chain, and wants nothing to be dear.
func TestChain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute, and minutes with the race detector, which has nothing to find in C")
	}
	program := buildProgram(t)
	if again := buildProgram(t); !bytes.Equal(program, again) {
		t.Error("the same sources make different programs")
	}
	for _, s := range suites(*operations) {
		t.Run(s.name, func(t *testing.T) {
			c := newChain(t, program)
			r := newPair(c)
			if err := s.run(r); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d operations, all accounts equal", r.operations)
			for _, name := range slices.Sorted(maps.Keys(c.units)) {
				t.Logf("%8d units: %s", c.units[name], name)
				if c.units[name] > unitLimit {
					t.Errorf("%s takes %d units, want at most %d", name, c.units[name], unitLimit)
				}
			}
		})
	}
}
