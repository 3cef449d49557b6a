package program

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/programtest/compile"
	"github.com/psyche-go/psyche/chain/sbpf"
)

const (
	file    = "psyche.so"
	sumFile = "psyche.so.sha256"
)

// TestSources checks that the program in the repository is the output of its sources. With -update
// it writes the program.
func TestSources(t *testing.T) {
	_, version, err := compile.Compiler(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if version != compile.Version {
		t.Skipf("clang %s may generate different code than %s, which compiled %s", version, compile.Version, file)
	}
	made, err := compile.Program(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	if golden.Update() {
		for name, content := range map[string][]byte{file: made, sumFile: sumOf(made)} {
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		ELF = made
	}
	if !bytes.Equal(made, ELF) {
		t.Errorf("%s is not the output of its sources: run make solana-program", file)
	}
}

func sumOf(elf []byte) []byte { return fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(elf), file) }

// TestSum checks that the published hash is the hash of the program, and that the program can be
// loaded.
func TestSum(t *testing.T) {
	sum, err := os.ReadFile(sumFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := sumOf(ELF); !bytes.Equal(sum, want) {
		t.Errorf("%s contains %s, want %s", sumFile, sum, want)
	}
	if _, err := sbpf.Load(ELF); err != nil {
		t.Error(err)
	}
}
