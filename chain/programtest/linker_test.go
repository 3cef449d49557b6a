package programtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/chain/programtest/compile"
)

// TestOtherLinker compiles the sources with a different version of LLVM and links them with
// sbpf-linker. The program must pass the same tests. A mistake of package link would be found
// unless the other linker makes the same mistake.
func TestOtherLinker(t *testing.T) {
	if testing.Short() || *programFile != "" {
		t.Skip("runs other tests again")
	}
	name := os.Getenv("SBPF_LINKER")
	if name == "" {
		name = "sbpf-linker"
	}
	linker, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no second linker: cargo install sbpf-linker, or name one in SBPF_LINKER: %v", err)
	}
	sources, err := compile.Sources(programFolder)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	elf := filepath.Join(folder, "other.so")
	arguments := []string{"--cpu", "v2", "--export", "entrypoint", "--llvm-args=--bpf-stack-size=4096", "-o", elf}
	for _, source := range sources {
		bitcode, err := compile.Object(t.Context(), programFolder, source, "-emit-llvm")
		if err != nil {
			t.Skip(err)
		}
		path := filepath.Join(folder, filepath.Base(source)+".bc")
		if err := os.WriteFile(path, bitcode, 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, path)
	}
	run(t, linker, arguments...)
	for _, tests := range []string{testsOfHost, "^TestChain$/^(random|filled|permissioned_crowd|permissionless_crowd)$"} {
		run(t, os.Args[0], "-test.run", tests, "-program", elf, "-ops", "800")
	}
}
