package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

const toyConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":256,"hidden_size":16,"intermediate_size":32,
"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":32,"eos_token_id":0}`

func requireTorch(t *testing.T) {
	t.Helper()
	err := torch.Load(torch.Options{Threads: 1})
	if torch.Missing(err) && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1" {
		t.Skipf("needs libtorch: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// execute runs a command line as the program does.
func execute(ctx context.Context, args ...string) (code int, out, problem string) {
	var stdout, stderr bytes.Buffer
	code = run(ctx, args, terminal{&stdout, &stderr})
	return code, stdout.String(), stderr.String()
}

func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, problem := execute(t.Context(), args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, problem)
	}
	return out
}

// differing matches text of messages that differs between machines and runs: times, processes,
// sizes of the machine, the libtorch version, keys and hashes.
var differing = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}|process \d+|[\d.]+ GiB are available|at most \d+ on a machine of \d+ CPUs|` +
	`at most \d+ groups|\d+ attempts in \w+|libtorch \S+ of the shim \S+|\b[1-9A-HJ-NP-Za-km-z]{43,44}\b|\b[0-9a-f]{64}\b`)

// fail runs a command that must end with the exit code and print the message of that name. In the
// message, ARCHITECTURES stands for the list of supported architectures.
func fail(t *testing.T, code int, name string, args ...string) {
	t.Helper()
	got, _, problem := execute(t.Context(), args...)
	if got != code {
		t.Errorf("%v: exit code %d: %s\twant %d", args, got, problem, code)
		return
	}
	golden.Message(t, name, errors.New(differing.ReplaceAllString(strings.TrimSuffix(problem, "\n"), "…")),
		strings.Join(model.Architectures(), ", "), "ARCHITECTURES")
}

// failNaming runs a command that must end with the exit code and with a message that contains
// datum. The rest of the message depends on the machine.
func failNaming(t *testing.T, code int, datum string, args ...string) {
	t.Helper()
	if got, _, problem := execute(t.Context(), args...); got != code || !strings.Contains(problem, datum) {
		t.Errorf("%v: exit code %d: %s\twant %d with %q", args, got, problem, code, datum)
	}
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func tokens(text string) []byte {
	var data []byte
	for _, b := range []byte(text) {
		data = binary.LittleEndian.AppendUint16(data, uint16(b))
	}
	return data
}

// toy creates a model and a data folder.
func toy(t *testing.T) (model, data string) {
	t.Helper()
	dir := t.TempDir()
	model, data = filepath.Join(dir, "model"), filepath.Join(dir, "data")
	succeed(t, "init-model", "--config", write(t, filepath.Join(dir, "config.json"), []byte(toyConfig)), "--seed", "3", "--output", model)
	write(t, filepath.Join(data, "a.ds"), tokens(strings.Repeat("What a tangled web we weave. ", 60)))
	return model, data
}

func TestInitModel(t *testing.T) {
	model, _ := toy(t)
	s, err := checkpoint.ReadDir(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		if text, found := s.File(name); !found || !json.Valid(text) {
			t.Errorf("%s: got %q; want found and json.Valid(text)", name, text)
		}
	}
	again, _ := toy(t)
	other, err := checkpoint.ReadDir(again)
	if err != nil || s.Manifest().Digest() != other.Manifest().Digest() {
		t.Errorf("the same seed gave a different model, %v", err)
	}

	config := filepath.Join(t.TempDir(), "config.json")
	output := filepath.Join(t.TempDir(), "out")
	fail(t, exitFailure, "occupied folder", "init-model", "--config", write(t, config, []byte(toyConfig)), "--output", model)
	fail(t, exitFailure, "unsupported architecture", "init-model", "--output", output, "--config",
		write(t, config, []byte(strings.Replace(toyConfig, "LlamaForCausalLM", "Bert", 1))))
	fail(t, exitFailure, "small vocabulary", "init-model", "--output", output, "--config",
		write(t, config, []byte(strings.Replace(toyConfig, "256", "255", 1))))
	if _, err := os.Stat(output); err == nil {
		t.Error("a refused model was written")
	}
}

func TestUsage(t *testing.T) {
	fail(t, exitUsage, "unknown flag", "solo", "--stepz", "4")
	fail(t, exitUsage, "missing flag", "evaluate", "--data", "x")
	fail(t, exitUsage, "unknown tokenizer", "init-model", "--tokenizer", "runes", "--config", os.DevNull, "--output", "x")
	fail(t, exitUsage, "late start", "solo", "--model", "m", "--data-path", "d", "--start-step", "101")
	if out := succeed(t, "--help"); !strings.Contains(out, "init-model") {
		t.Errorf("help: %s", out)
	}
}

func TestTrainRejects(t *testing.T) {
	t.Setenv("PSYCHE_KNOWN_SERVERS", filepath.Join(t.TempDir(), "known_servers"))
	train := func(want string, args ...string) {
		t.Helper()
		fail(t, exitUsage, want, append([]string{"train", "--run-id", "r", "--server-addr", "127.0.0.1:1", "--log", "none"}, args...)...)
	}
	train("no micro batch", "--micro-batch-size", "0")
	train("no timeout", "--server-timeout", "0s")
	train("no blob memory", "--max-blob-memory", "0")
	train("endless blob memory", "--max-blob-memory", "9223372036854775807")
	train("keep less than nothing", "--keep-steps=-1")
	train("upload without a folder", "--hub-repo", "org/name")
	train("path as repository", "--hub-repo", "org/../name", "--checkpoint-dir", "x")
	train("private without a repository", "--hub-private")
	train("no upload timeout", "--upload-timeout", "0s")
}

// TestNoSilentNumbers checks that numbers that would otherwise have a special meaning are refused.
func TestNoSilentNumbers(t *testing.T) {
	model, data := toy(t)
	for _, command := range [][]string{
		{"train", "--run-id", "r", "--server-addr", "127.0.0.1:1"},
		{"solo", "--model", model, "--data-path", data},
		{"evaluate", "--model", model, "--data", data},
		{"generate", "--model", model, "--prompt", "a"},
		{"doctor"},
	} {
		fail(t, exitUsage, command[0]+", too few threads", append(command, "--threads=-1")...)
		fail(t, exitUsage, command[0]+", too many threads", append(command, "--threads", "1000000")...)
	}
	fail(t, exitFailure, "no groups", "solo", "--model", model, "--data-path", data, "--data-parallelism", "0")
	for _, groups := range [][]string{{"1000000", "1"}, {"1", "1000000"}, {"512", "512"}, {"9223372036854775807", "9223372036854775807"}} {
		fail(t, exitFailure, strings.Join(groups, " and ")+" groups", "solo", "--model", model, "--data-path", data,
			"--data-parallelism", groups[0], "--tensor-parallelism", groups[1])
	}
	fail(t, exitUsage, "--log-every 0", "solo", "--model", model, "--data-path", data, "--log-every", "0")
}

func TestSoloAndEvaluate(t *testing.T) {
	requireTorch(t)
	for _, optimizer := range []string{"adamw", "distro"} {
		t.Run(optimizer, func(t *testing.T) {
			model, data := toy(t)
			solo := func(save, steps string, more ...string) string {
				return succeed(t, append([]string{"solo", "--model", model, "--data-path", data, "--held-out", data,
					"--seq-len", "16", "--total-batch", "4", "--micro-batch", "2", "--optimizer", optimizer, "--lr", "0.01",
					"--lr-schedule", "constant", "--shuffle", "5", "--steps", steps, "--save", save, "--threads", "1"}, more...)...)
			}
			whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
			out := solo(whole, "12", "--save-every", "5")
			if !strings.Contains(out, "step 12  held-out loss") || strings.Count(out, "saved") != 3 {
				t.Errorf("printed: %s", out)
			}
			solo(parts, "7")
			if out := solo(parts, "12"); !strings.Contains(out, "step 7 of 12") {
				t.Errorf("did not resume: %s", out)
			}
			if digest(t, whole) != digest(t, parts) {
				t.Error("a resumed training differs")
			}
			before, after := loss(t, model, data), loss(t, whole, data)
			if math.Abs(before-math.Log(256)) > 0.1 || after > before-0.5 {
				t.Errorf("loss went from %v to %v", before, after)
			}
		})
	}
}

func digest(t *testing.T, dir string) [32]byte {
	t.Helper()
	s, err := checkpoint.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s.Manifest().Digest()
}

func loss(t *testing.T, model, data string) float64 {
	t.Helper()
	var result evaluation
	events := t.TempDir()
	out := succeed(t, "evaluate", "--model", model, "--data", data, "--seq-len", "16", "--max-sequences", "9", "--json", "--threads", "1", "--events-dir", events)
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Sequences != 9 || result.Tokens != 144 {
		t.Fatalf("evaluate printed %s: %v", out, err)
	}
	log, err := os.ReadFile(filepath.Join(events, "events.jsonl"))
	if want := fmt.Sprintf(`"task":"loss","scores":{"loss":%v,`, result.Loss); err != nil || !strings.Contains(string(log), want) {
		t.Errorf("%s is missing in the event log: %v\n%s", want, err, log)
	}
	return result.Loss
}

// TestEvaluateReportsValuesThatJSONCannotContain scales the weights of a model to get values that
// JSON cannot represent: an infinite perplexity, and a loss that is not a number.
func TestEvaluateReportsValuesThatJSONCannotContain(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	scaled := func(factor float32) string {
		s, err := checkpoint.ReadDir(model)
		if err != nil {
			t.Fatal(err)
		}
		for i, tensor := range s.Tensors {
			if tensor.Name != "model.norm.weight" {
				continue
			}
			values, err := tensor.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			for j := range values {
				values[j] *= factor
			}
			s.Tensors[i] = safetensors.FromFloat32s(tensor.Name, tensor.Shape, values)
		}
		dir := filepath.Join(t.TempDir(), "scaled")
		if err := checkpoint.WriteDir(dir, s); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	line := []string{"evaluate", "--data", data, "--seq-len", "16", "--threads", "1", "--json", "--model"}
	var result map[string]any
	if out := succeed(t, append(line, scaled(1e6))...); json.Unmarshal([]byte(out), &result) != nil || result["perplexity"] != nil || result["loss"].(float64) < 1000 {
		t.Errorf("evaluate printed %s", out)
	}
	fail(t, exitFailure, "NaN", append(line, scaled(float32(math.NaN())))...)
	fail(t, exitFailure, "NaN as the only model", append(line[:len(line)-2:len(line)-2], "--model", scaled(float32(math.NaN())))...)
}

func TestInterruptedSoloSaves(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	save := filepath.Join(t.TempDir(), "save")
	ctx, cancel := context.WithCancel(t.Context())
	// The first progress line interrupts the training.
	out := writer(func(line []byte) {
		if bytes.HasPrefix(line, []byte("step 1/")) {
			cancel()
		}
	})
	var problem bytes.Buffer
	code := run(ctx, []string{"solo", "--model", model, "--data-path", data, "--seq-len", "16", "--total-batch", "2",
		"--steps", "100000", "--save", save, "--threads", "1"}, terminal{out, &problem})
	if code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, &problem)
	}
	s, err := checkpoint.ReadDir(save)
	if err != nil || s.Step != 1 {
		t.Errorf("saved step %d, %v", s.Step, err)
	}
}

type writer func(line []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestSoloRejects(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	dir := t.TempDir()
	odd := filepath.Dir(write(t, filepath.Join(dir, "odd", "a.ds"), make([]byte, 101)))
	foreign := filepath.Dir(write(t, filepath.Join(dir, "foreign", "a.ds"), bytes.Repeat([]byte{0, 1}, 100)))
	occupied := filepath.Dir(write(t, filepath.Join(dir, "occupied", "notes.txt"), []byte("mine")))
	cut := filepath.Join(dir, "cut")
	if err := os.CopyFS(cut, os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(cut, "model.safetensors"), 2000); err != nil {
		t.Fatal(err)
	}
	solo := func(want string, args ...string) {
		t.Helper()
		base := map[string]string{"--model": model, "--data-path": data, "--seq-len": "16", "--steps": "1"}
		for i := 0; i < len(args); i += 2 {
			base[args[i]] = args[i+1]
		}
		line := []string{"solo"}
		for flag, value := range base {
			line = append(line, flag, value)
		}
		fail(t, exitFailure, want, line...)
	}
	solo("missing folder", "--data-path", filepath.Join(dir, "none"))
	solo("odd length", "--data-path", odd)
	solo("other vocabulary", "--data-path", foreign)
	solo("long sequences", "--seq-len", "33")
	fail(t, exitUsage, "no batch", "solo", "--model", model, "--data-path", data, "--total-batch", "0")
	solo("long warmup", "--warmup-steps", "50")
	solo("folder of notes", "--save", occupied)
	solo("folder of a model", "--save", model)
	solo("cut model", "--model", cut)
	if data, err := os.ReadFile(filepath.Join(occupied, "notes.txt")); err != nil || string(data) != "mine" {
		t.Errorf("notes.txt: %q, %v", data, err)
	}
}

func TestGenerate(t *testing.T) {
	requireTorch(t)
	model, _ := toy(t)
	generate := func(seed string) string {
		return succeed(t, "generate", "--model", model, "--prompt", "What", "--max-tokens", "50", "--seed", seed, "--threads", "1")
	}
	one := generate("1")
	if !strings.HasPrefix(one, "What") || len(one) < 5 || one != generate("1") || one == generate("2") {
		t.Errorf("seeds 1, 1 and 2 gave %q, %q, %q", one, generate("1"), generate("2"))
	}
	fail(t, exitFailure, "empty prompt", "generate", "--model", model, "--prompt", "")
	fail(t, exitFailure, "negative temperature", "generate", "--model", model, "--prompt", "a", "--temperature=-1")
	greedy := func(more ...string) string {
		return succeed(t, append([]string{"generate", "--model", model, "--prompt", "What", "--max-tokens", "40", "--threads", "1"}, more...)...)
	}
	if a, b := greedy("--temperature", "0", "--seed", "3"), greedy("--top-p", "1e-9", "--seed", "4"); a != b {
		t.Errorf("the most likely tokens are %q or %q", a, b)
	}
	if a, b := greedy("--temperature", "0"), greedy("--temperature", "0", "--repetition-penalty", "100"); a == b {
		t.Errorf("a penalty changes nothing in %q", a)
	}
}

// TestGenerateChat checks that the prompt is put into the model's template. The model continues the
// same text as when that text is the prompt, and only the answer is printed.
func TestGenerateChat(t *testing.T) {
	requireTorch(t)
	original, _ := toy(t)
	model := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(model, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	ask := []string{"generate", "--model", model, "--max-tokens", "30", "--threads", "1", "--prompt"}
	fail(t, exitFailure, "no chat template", append(ask, "What", "--chat")...)
	template := filepath.Join(model, "chat_template.jinja")
	write := func(text string) {
		if err := os.WriteFile(template, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<model>{% endif %}")
	const rendered = "<user>What<model>"
	plain, answer := succeed(t, append(ask, rendered)...), succeed(t, append(ask, "What", "--chat")...)
	if plain != rendered+answer {
		t.Errorf("%q, want the text after the prompt in %q", answer, plain)
	}
	fail(t, exitFailure, "control token", append(ask, "a\x00b", "--chat")...) // 0 is eos_token_id
	write("{{ messages | nosuch }}")
	fail(t, exitFailure, "unknown filter", append(ask, "What", "--chat")...)
}

func TestDoctor(t *testing.T) {
	requireTorch(t)
	out := succeed(t, "doctor")
	for _, want := range []string{"libtorch", "threads", "DisTrO kernel", "OMP_NUM_THREADS"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
}
