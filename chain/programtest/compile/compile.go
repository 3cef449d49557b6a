// Package compile builds the program for the chain from its sources with clang and package link.
// Tests use it to check the program file in the repository, and to write it after a change of the
// sources (make solana-program).
package compile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/chain/programtest/link"
)

// Version is the clang version that compiled the program in the repository. Other versions may
// compile the same sources to different bytes.
const Version = "19.1.7"

// errNoCompiler means that there is no compiler for the chain.
var errNoCompiler = errors.New("no compiler for the chain: install clang-19 or name one in CLANG")

// flags produce objects that package link accepts: no 32-bit arithmetic (-mcpu=v2), and stack
// frames that fit the chain.
var flags = []string{
	"-target", "bpfel", "-mcpu=v2", "-O2", "-std=c11", "-ffreestanding", "-fno-builtin", "-fno-jump-tables", "-fno-unwind-tables",
	"-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wconversion", "-Werror", "-mllvm", "-bpf-stack-size=4096",
}

// Compiler returns the path and the version of the compiler: clang-19, or the compiler in CLANG.
func Compiler(ctx context.Context) (path, version string, err error) {
	name := os.Getenv("CLANG")
	name = cmp.Or(name, "clang-19")
	if path, err = exec.LookPath(name); err != nil {
		return "", "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	out, err := exec.CommandContext(ctx, path, "-dumpversion").Output()
	if err != nil {
		return "", "", fmt.Errorf("%w: %s -dumpversion: %w", errNoCompiler, path, err)
	}
	return path, strings.TrimSpace(string(out)), nil
}

// Sources returns the paths of a program's sources in a folder.
func Sources(folder string) ([]string, error) {
	var paths []string
	for _, part := range []string{"rules", "chain"} {
		found, err := filepath.Glob(filepath.Join(folder, part, "*.c"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no sources of the program: name the folder chain/program", filepath.Join(folder, part))
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// Program compiles and links the sources in a folder. The output depends only on the sources and
// the compiler, not on the folder's path.
func Program(ctx context.Context, folder string) ([]byte, error) {
	sources, err := Sources(folder)
	if err != nil {
		return nil, err
	}
	var objects []link.Object
	for _, source := range sources {
		b, err := Object(ctx, folder, source)
		if err != nil {
			return nil, err
		}
		objects = append(objects, link.Object{Name: filepath.Base(source), Bytes: b})
	}
	return link.Link(objects)
}

// Object compiles a source with additional flags.
func Object(ctx context.Context, folder, source string, more ...string) ([]byte, error) {
	compiler, _, err := Compiler(ctx)
	if err != nil {
		return nil, err
	}
	arguments := slices.Concat(flags, more, []string{"-I", filepath.Join(folder, "rules"), "-I", filepath.Join(folder, "chain"), "-c", source, "-o", "-"})
	command := exec.CommandContext(ctx, compiler, arguments...)
	var problems strings.Builder
	command.Stderr = &problems
	object, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", source, err, problems.String())
	}
	return object, nil
}
