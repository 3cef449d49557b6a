package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// module is the path of the product's module.
const module = "github.com/psyche-go/psyche"

// platform is an operating system and a processor, in Go's words.
type platform struct{ system, machine string }

func (p platform) String() string { return p.system + "-" + p.machine }

// native is the platform of this program.
var native = platform{runtime.GOOS, runtime.GOARCH}

// env returns the environment for go build. It overrides all variables that change the bytes of a
// program, except the C compiler's variables.
func (p platform) env(cgo string) []string {
	return []string{"GOOS=" + p.system, "GOARCH=" + p.machine, "CGO_ENABLED=" + cgo, "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0"}
}

// compile builds one program. go build does not record the repository's state, because that differs
// between a clone and a worktree; the linker's flags record the commit.
func (s source) compile(ctx context.Context, p platform, cgo, program, to string) error {
	info := module + "/cmd/internal/buildinfo"
	flags := fmt.Sprintf("-s -w -X %s.commit=%s -X %s.tag=%s", info, s.commit, info, s.tag)
	if cgo == "1" {
		// The program opens OpenBLAS itself, so the libraries of OpenBLAS are searched with the program's path.
		flags += " -extldflags '-Wl,--disable-new-dtags,-rpath,$ORIGIN/../" + libraryFolder + "'"
	}
	_, err := output(ctx, s.root, p.env(cgo), "go", "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-ldflags", flags, "-o", to, "./cmd/"+program)
	return err
}

// licences returns the licences of a program's third-party code.
func (s source) licences(ctx context.Context, p platform, cgo, program string) ([]byte, error) {
	text, err := output(ctx, s.root, p.env(cgo), filepath.Join(s.root, "scripts", "licences.sh"), "./cmd/"+program)
	return []byte(text + "\n"), err
}

// manual returns the man page and the completions of a program that runs on this machine.
func manual(ctx context.Context, program, executable string) ([]file, error) {
	page, err := output(ctx, "", nil, executable, "print-man")
	if err != nil {
		return nil, err
	}
	files := []file{{name: "share/man/man1/" + program + ".1", data: []byte(page + "\n")}}
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/" + program,
		"zsh":  "share/zsh/site-functions/_" + program,
		"fish": "share/fish/vendor_completions.d/" + program + ".fish",
	} {
		text, err := output(ctx, "", nil, executable, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: name, data: []byte(text + "\n")})
	}
	return files, nil
}

// papers returns a program's licence, notices and changes.
func (s source) papers(ctx context.Context, p platform, cgo, program string) ([]file, error) {
	text, err := s.licences(ctx, p, cgo, program)
	if err != nil {
		return nil, err
	}
	folder := "share/doc/" + program + "/"
	files := []file{{name: folder + "licences.txt", data: text}}
	for _, name := range []string{"LICENSE", "NOTICE", "CHANGELOG.md"} {
		files = append(files, file{name: folder + name, path: filepath.Join(s.root, name)})
	}
	return files, nil
}

// verifier builds the program that pages send to browsers.
func (s source) verifier(ctx context.Context, work string) ([]file, error) {
	p := platform{"js", "wasm"}
	to := filepath.Join(work, "verifier.wasm")
	if _, err := output(ctx, s.root, p.env("0"), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, "./face/dash/verify/wasm"); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	goroot, err := output(ctx, s.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return []file{
		{name: "lib/psyche/verifier.wasm.gz", data: zipped.Bytes()},
		{name: "lib/psyche/wasm_exec.js", path: filepath.Join(strings.TrimSpace(goroot), "lib", "wasm", "wasm_exec.js")},
	}, nil
}
