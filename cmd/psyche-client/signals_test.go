//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/base/signals/signalstest"
)

const signalledLine = "PSYCHE_TEST_SIGNALLED_LINE"

// TestSignalledProcess is not a test. It is the program of TestSignals; the environment has its
// command line.
func TestSignalledProcess(t *testing.T) {
	line := os.Getenv(signalledLine)
	if line == "" {
		t.Skip("needs " + signalledLine)
	}
	var args []string
	if err := json.Unmarshal([]byte(line), &args); err != nil {
		t.Fatal(err)
	}
	os.Args = append([]string{"psyche-client"}, args...)
	fmt.Println(signalstest.Started)
	main()
}

// largeConfig describes a model whose weights take a while to draw.
const largeConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":256,"hidden_size":1024,"intermediate_size":8192,
"num_hidden_layers":16,"num_attention_heads":8,"max_position_embeddings":32,"eos_token_id":0}`

// TestSignals sends each terminating signal to commands in separate processes. Each command must
// end soon and keep its work. The limit is wider than the second that a user waits, because the
// machine can be under load.
func TestSignals(t *testing.T) {
	const limit = 5 * time.Second
	model, data := toy(t)
	config := write(t, filepath.Join(t.TempDir(), "large.json"), []byte(largeConfig))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	t.Setenv("HF_ENDPOINT", "http://"+silent.Addr().String())
	t.Setenv("HF_TOKEN", "token")
	link := "psyche://" + silent.Addr().String() + "/r?key=" + identity.FromSeed([identity.SeedSize]byte{1}).ID().String() + "&genesis=" + strings.Repeat("ab", 32)
	pipe := filepath.Join(t.TempDir(), "key") // opening it blocks until a writer opens it
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	line := func(words ...string) func(string) []string { return func(string) []string { return words } }
	called := slices.Clone(brief)
	for _, c := range []struct {
		name   string
		torch  bool
		line   func(dir string) []string
		until  string // text that the command prints when it is working; empty: a second after its start
		code   int
		prints string
		keeps  string // file
	}{
		{name: "init-model", line: func(dir string) []string {
			return []string{"init-model", "--config", config, "--output", filepath.Join(dir, "model")}
		}, code: signals.Interrupted},
		{name: "solo that saves", torch: true, line: func(dir string) []string {
			return soloLine(model, data, "--steps", "1000000", "--log-every", "1", "--save", filepath.Join(dir, "saved"))
		}, until: "step 2/", code: signals.Interrupted, prints: "saved step", keeps: "saved/model.safetensors"},
		{name: "solo", torch: true, line: func(string) []string {
			return soloLine(model, data, "--steps", "1000000", "--log-every", "1")
		}, until: "step 2/", code: signals.Interrupted},
		{name: "generate", torch: true, line: func(string) []string {
			return []string{"generate", "--model", model, "--prompt", "prompt", "--max-tokens", "10000000", "--ignore-eos", "--threads", "1"}
		}, until: "prompt", code: signals.Interrupted},
		{name: "serve-model", torch: true, line: func(string) []string {
			return []string{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0", "--threads", "1"}
		}, until: "answers at"},
		{name: "train", torch: true, line: func(string) []string {
			return []string{"train", "--server-addr", "127.0.0.1:1", "--run-id", "r", "--logs", "console"}
		}, until: "trying again", code: signals.Interrupted},
		{name: "join", torch: true, line: line("join", link, "--logs", "console"), code: signals.Interrupted},
		{name: "serve", line: line("serve", link), code: signals.Interrupted},
		{name: "evaluate", torch: true, line: line("evaluate", "--model", "owner/name", "--data", data), code: signals.Interrupted},
		{name: "download", line: line("download", "owner/name"), code: signals.Interrupted},
		{name: "upload", line: line("upload", model, "owner/name"), code: signals.Interrupted},
		{name: "show-identity", line: line("show-identity", "--identity-secret-key-path", pipe), code: signals.Interrupted},
	} {
		called = append(called, c.line("")[0])
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(fmt.Sprint(c.name, " ", s), func(t *testing.T) {
				if c.torch {
					requireTorch(t)
				}
				dir := t.TempDir()
				p := startLine(t, dir, c.line(dir))
				p.Await(t, c.until)
				code, took := p.End(t, s)
				if out := p.Text(); code != c.code || took > limit || !strings.Contains(out, c.prints) {
					t.Errorf("ended with %d after %v, want %d and %q: %s", code, took, c.code, c.prints, out[max(0, len(out)-500):])
				}
				if _, err := os.Stat(filepath.Join(dir, c.keeps)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	parser, err := newParser(t.Context(), &commands{}, terminal{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		if !slices.Contains(called, leaf.Name) {
			t.Errorf("%s: no signal is sent to this command; add it to this test", leaf.Name)
		}
	}
}

// brief lists the commands that end by themselves within a second.
var brief = []string{"doctor", "version", "completion", "print-man", "print-all-help"}

// TestNohup checks that a training that was started with SIGHUP ignored does not end on SIGHUP.
func TestNohup(t *testing.T) {
	requireTorch(t)
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skipf("needs nohup: %v", err)
	}
	model, data := toy(t)
	p := startLine(t, t.TempDir(), soloLine(model, data, "--steps", "1000000", "--log-every", "1"), nohup)
	p.Await(t, "step 1/")
	p.Send(t, syscall.SIGHUP)
	before := strings.Count(p.Text(), "step ")
	for deadline := time.Now().Add(20 * time.Second); strings.Count(p.Text(), "step ") < before+5; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the training stands still: %s", p.Text())
		}
	}
	if code, _ := p.End(t, syscall.SIGTERM); code != signals.Interrupted {
		t.Errorf("ended with %d", code)
	}
}

// startLine starts this program with a command line. The words of before come first.
func startLine(t *testing.T, dir string, line []string, before ...string) *signalstest.Process {
	t.Helper()
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	args := append(before, os.Args[0], "-test.run=^TestSignalledProcess$")
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	command.Env = append(os.Environ(), signalledLine+"="+string(text), "XDG_STATE_HOME="+dir)
	return signalstest.Start(t, command)
}
