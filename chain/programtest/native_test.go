package programtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/core/coordinator"
)

var le = binary.LittleEndian

// The C is compiled as for the chain, with additional checks for forbidden behaviour.
var compilerFlags = []string{
	"-std=c11", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wconversion", "-Werror",
	"-fsanitize=undefined,address", "-fno-sanitize-recover=all",
}

const sources = "../program/rules" // of the rules

// compiler returns the machine's C compiler, if it has the necessary checks.
var compiler = sync.OnceValues(func() (string, error) {
	name := os.Getenv("CC")
	if name == "" {
		name = "cc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no C compiler: install one or name it in CC: %w", err)
	}
	probe := exec.Command(path, append(compilerFlags, "-x", "c", "-", "-o", os.DevNull)...)
	probe.Stdin = strings.NewReader("int main(void) { return 0; }\n")
	if out, err := probe.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s cannot check bounds and undefined behaviour: %w\n%s", path, err, out)
	}
	return path, nil
})

func needCompiler(t *testing.T) string {
	t.Helper()
	path, err := compiler()
	if err != nil {
		t.Skip(err)
	}
	return path
}

// compileNative makes an object of a source.
func compileNative(t *testing.T, source, object string) {
	t.Helper()
	run(t, needCompiler(t), append(compilerFlags, "-I", sources, "-c", source, "-o", object)...)
}

// nativeSources returns the paths of the sources of the rules and of the parts of the host that
// they need.
func nativeSources(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, folder := range []string{sources, "../program/native"} {
		found, err := filepath.Glob(filepath.Join(folder, "*.c"))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

func linkNative(t *testing.T, program string, objects map[string]string) {
	t.Helper()
	arguments := append(slices.Clone(compilerFlags), "-o", program)
	run(t, needCompiler(t), slices.AppendSeq(arguments, maps.Values(objects))...)
}

func run(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
}

// built is the program that all tests share. TestMain removes its folder.
var built struct {
	once    sync.Once
	folder  string
	objects map[string]string // by the names of their sources
	program string
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(1000) // accounts are large and short-lived
	code := m.Run()
	if built.folder != "" {
		_ = os.RemoveAll(built.folder)
	}
	os.Exit(code)
}

// native returns the program, compiled once.
func native(t *testing.T) string {
	t.Helper()
	needCompiler(t)
	built.once.Do(func() {
		folder, err := os.MkdirTemp("", "programtest")
		if err != nil {
			t.Fatal(err)
		}
		built.folder, built.objects = folder, map[string]string{}
		for _, source := range nativeSources(t) {
			name := filepath.Base(source)
			built.objects[name] = filepath.Join(folder, name+".o")
			compileNative(t, source, built.objects[name])
		}
		linkNative(t, filepath.Join(folder, "native"), built.objects)
		built.program = filepath.Join(folder, "native")
	})
	if built.program == "" {
		t.Fatal("the program does not compile: see the first failed test")
	}
	return built.program
}

// Kinds of operations, as in native.c.
const (
	opGenesis = iota
	opApply
	opTick
	opDue
	opLoad
)

const (
	partSize    = 512
	answerLimit = 20 * time.Second
)

// process is a running program with the newest copy of its state.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	pipe    *os.File
	out     *bufio.Reader
	stderr  strings.Builder
	account []byte
	buffer  []byte
}

func start(program string) (*process, error) {
	p := &process{command: exec.Command(program), account: make([]byte, layout.Size)}
	p.command.Stderr = &p.stderr
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.pipe, p.out = in, out.(*os.File), bufio.NewReaderSize(out, 1<<16)
	return p, p.command.Start()
}

// stop ends the process. It returns its output if it failed.
func (p *process) stop() error {
	_ = p.in.Close()
	timer := time.AfterFunc(answerLimit, func() { _ = p.command.Process.Kill() })
	defer timer.Stop()
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.stderr.String())
	}
	return nil
}

func (p *process) state() []byte { return p.account }

// operation is a request to a core.
type operation struct {
	kind       uint64
	from       coordinator.ClientID
	nonce, now uint64
	draw       [32]byte
	body       []byte
}

// answer is the result of an operation.
type answer struct {
	result, number uint64
	changed        int // parts of the account
}

func (p *process) do(o operation) (answer, error) {
	b := le.AppendUint32(p.buffer[:0], uint32(8+32+2*8+32+len(o.body)))
	b = append(le.AppendUint64(b, o.kind), o.from[:]...)
	b = append(le.AppendUint64(le.AppendUint64(b, o.nonce), o.now), o.draw[:]...)
	p.buffer = append(b, o.body...)
	if err := p.pipe.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return answer{}, err
	}
	if _, err := p.in.Write(p.buffer); err != nil {
		return answer{}, err
	}
	a, err := p.read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.command.Process.Kill()
	}
	return a, err
}

func (p *process) read() (answer, error) {
	var head [20]byte
	if _, err := io.ReadFull(p.out, head[:]); err != nil {
		return answer{}, err
	}
	a := answer{result: le.Uint64(head[:]), number: le.Uint64(head[8:]), changed: int(le.Uint32(head[16:]))}
	for range a.changed {
		var part [4]byte
		if _, err := io.ReadFull(p.out, part[:]); err != nil {
			return answer{}, err
		}
		at := int(le.Uint32(part[:])) * partSize
		if at >= len(p.account) {
			return answer{}, fmt.Errorf("the program answers with byte %d of an account of %d: state.h and package layout differ in its size", at, len(p.account))
		}
		if _, err := io.ReadFull(p.out, p.account[at:min(at+partSize, len(p.account))]); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}
