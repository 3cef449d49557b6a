package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// envSecondShim is the variable with the path of a shim that was built against a second libtorch.
const envSecondShim = "PSYCHE_TEST_SHIM2"

// stack is a trainer's combination of libraries: the six of e2e's TestReplicasOfDifferentLibraries.
type stack struct {
	name    string
	second  bool   // the second libtorch, if there is one
	blas    string // OPENBLAS_CORETYPE
	aten    string // ATEN_CPU_CAPABILITY
	generic bool   // without our own loops over memory
	threads int
	data    int // data parallelism
	bf16    bool
	micro   int
}

func stacks() []stack {
	return []stack{
		{name: "newest", threads: 1, micro: 4},
		{name: "two-threads", blas: "Haswell", aten: "avx2", threads: 2, micro: 2},
		{name: "old", blas: "Prescott", aten: "default", threads: 1, micro: 1},
		{name: "bf16", threads: 2, bf16: true, micro: 4},
		{name: "other", second: true, blas: "Haswell", threads: 2, data: 2, micro: 2},
		{name: "other-bf16", second: true, aten: "default", generic: true, threads: 1, bf16: true, micro: 1},
	}
}

// process is a running worker.
type process struct {
	stack
	command *exec.Cmd
	stdin   io.WriteCloser
	in      *gob.Decoder
	out     *gob.Encoder
}

func (s stack) start(model string, lr, decay float64) (*process, error) {
	arguments := []string{"--model", model, "--threads", strconv.Itoa(s.threads), "--data", strconv.Itoa(s.data),
		"--decay", strconv.FormatFloat(decay, 'g', -1, 64), "--lr", strconv.FormatFloat(lr, 'g', -1, 64), "--micro", strconv.Itoa(s.micro)}
	if s.bf16 {
		arguments = append(arguments, "--bf16")
	}
	return s.run("worker", arguments...)
}

// run starts one of this program's workers in the environment of the stack.
func (s stack) run(worker string, arguments ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{stack: s, command: exec.Command(program, append([]string{worker}, arguments...)...)}
	p.command.Stderr = os.Stderr
	p.command.Env = slices.Concat(os.Environ(), []string{"OPENBLAS_CORETYPE=" + s.blas})
	if s.aten != "" {
		p.command.Env = append(p.command.Env, "ATEN_CPU_CAPABILITY="+s.aten)
	}
	if s.generic {
		p.command.Env = append(p.command.Env, "PSYCHE_TORCH_GENERIC=1")
	}
	if shim := os.Getenv(envSecondShim); s.second && shim != "" {
		p.command.Env = append(p.command.Env, "PSYCHE_TORCH_SHIM="+shim)
	}
	stdin, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.in, p.out = stdin, gob.NewDecoder(stdout), gob.NewEncoder(stdin)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start stack %s: %w", s.name, err)
	}
	return p, nil
}

func (p *process) ask(r request) (answer, error) {
	if err := p.out.Encode(r); err != nil {
		return answer{}, fmt.Errorf("stack %s: %w", p.name, err)
	}
	var a answer
	if err := p.in.Decode(&a); err != nil {
		return answer{}, fmt.Errorf("stack %s: %w", p.name, err)
	}
	if a.Error != "" {
		return answer{}, fmt.Errorf("stack %s: %s", p.name, a.Error)
	}
	return a, nil
}

func (p *process) close() error { return errors.Join(p.stdin.Close(), p.command.Wait()) }
