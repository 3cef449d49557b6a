package runtime

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/chain/programtest/link"
	"github.com/psyche-go/psyche/chain/sbpf"
)

var update = flag.Bool("update", false, "write testdata/probe.so again")

const probeFile = "testdata/probe.so"

// probe is the program of testdata/probe.c.
func probe(t testing.TB) *sbpf.Program {
	t.Helper()
	file, err := os.ReadFile(probeFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sbpf.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProbe checks that the committed program is the output of its source.
func TestProbe(t *testing.T) {
	name := os.Getenv("CLANG")
	if name == "" {
		name = "clang-19"
	}
	clang, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no compiler for the chain: install clang-19 or name one in CLANG: %v", err)
	}
	object := filepath.Join(t.TempDir(), "probe.o")
	out, err := exec.Command(clang, "-target", "bpfel", "-mcpu=v2", "-O2", "-std=c11", "-ffreestanding", "-fno-builtin", "-fno-jump-tables",
		"-fno-unwind-tables", "-Wall", "-Wextra", "-Werror", "-mllvm", "-bpf-stack-size=4096", "-c", "testdata/probe.c", "-o", object).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	made, err := link.Link([]link.Object{{Name: "probe.o", Bytes: b}})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(probeFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(probeFile)
	if err != nil || !bytes.Equal(committed, made) {
		t.Errorf("%s is not the output of probe.c: run go test -run Probe -update (%v)", probeFile, err)
	}
}
