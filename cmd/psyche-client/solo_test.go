package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

// describeData puts a data.json into a folder with a file a.ds.
func describeData(t *testing.T, data string, tokenSize int) {
	t.Helper()
	info, err := os.Stat(filepath.Join(data, "a.ds"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := manifest.Manifest{
		Version: 1, TokenSizeInBytes: tokenSize,
		Files: []manifest.File{{Name: "a.ds", Tokens: uint64(info.Size()) / uint64(tokenSize)}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, manifest.Name), text)
}

// widen rewrites the two-byte tokens of a folder as four-byte tokens, with a data.json.
func widen(t *testing.T, data string) {
	t.Helper()
	path := filepath.Join(data, "a.ds")
	narrow, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var wide []byte
	for i := 0; i < len(narrow); i += 2 {
		wide = append(wide, narrow[i], narrow[i+1], 0, 0)
	}
	write(t, path, wide)
	describeData(t, data, 4)
}

// soloLine is a short command line.
func soloLine(model, data string, more ...string) []string {
	return append([]string{"solo", "--model", model, "--data-path", data, "--seq-len", "16", "--total-batch", "2",
		"--micro-batch", "2", "--lr-schedule", "constant", "--threads", "1"}, more...)
}

func TestTokenSizeComesFromTheData(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	before := loss(t, model, data)
	widen(t, data)
	if after := loss(t, model, data); after != before {
		t.Errorf("four-byte tokens have the loss %v, two-byte tokens %v", after, before)
	}
	if out := succeed(t, soloLine(model, data, "--steps", "1", "--held-out", data, "--held-out-sequences", "9")...); !strings.Contains(out, "9 of 108") {
		t.Errorf("printed %s", out)
	}
	for _, line := range [][]string{
		soloLine(model, data, "--steps", "1", "--token-size", "2"),
		{"evaluate", "--model", model, "--data", data, "--seq-len", "16", "--token-size", "2"},
	} {
		fail(t, exitFailure, line[0]+" with another size", line...)
	}
	if err := os.Truncate(filepath.Join(data, "a.ds"), 4000); err != nil {
		t.Fatal(err)
	}
	fail(t, exitFailure, "cut file", soloLine(model, data, "--steps", "1")...)
}

func TestEvaluateSaysHowMuchItRead(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	line := []string{"evaluate", "--model", model, "--data", data, "--seq-len", "16", "--threads", "1"}
	if out := succeed(t, line...); !strings.Contains(out, "all 108 sequences of 16 tokens") {
		t.Errorf("printed %s", out)
	}
	var result evaluation
	if err := json.Unmarshal([]byte(succeed(t, append(line, "--json", "--max-sequences", "64")...)), &result); err != nil ||
		result.Sequences != 64 || result.OfSequences != 108 || result.Sample != "64 of 108 sequences of 16 tokens, spread" {
		t.Errorf("got %+v, %v; want nil error and result.Sequences == 64 and result.OfSequences == 108 and result.Sample == \"64 of 108 sequences of 16 tokens, spread\"", result, err)
	}
}

func TestHelpShowsDefaults(t *testing.T) {
	for command, wanted := range map[string][]string{
		"solo":     {"(256)", "(10)", "(0)"},
		"evaluate": {"(256)"},
	} {
		out := strings.Join(strings.Fields(succeed(t, command, "--help")), " ")
		for _, want := range wanted {
			if !strings.Contains(out, want) {
				t.Errorf("help of %s has no %q:\n%s", command, want, out)
			}
		}
	}
}

func TestNegativeNumbersAreNumbers(t *testing.T) {
	model, data := toy(t)
	fail(t, exitUsage, "steps", soloLine(model, data, "--steps", "-1")...)
	fail(t, exitUsage, "batch", append(soloLine(model, data), "--total-batch", "-1")...)
	fail(t, exitUsage, "rate", append(soloLine(model, data), "--lr", "nan")...)
	fail(t, exitUsage, "file", append(soloLine(model, data), "--held-out", "")...)
}

// TestSoloKeepsModelType trains a small Kimi K2, which has DeepSeek-V3's network, and checks that
// its config.json is unchanged.
func TestSoloKeepsModelType(t *testing.T) {
	requireTorch(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "learn", "model", "deepseek", "testdata", "kimi-k2", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `"vocab_size": 24`, `"vocab_size": 256`, 1))
	_, data := toy(t)
	dir := t.TempDir()
	model, save := filepath.Join(dir, "model"), filepath.Join(dir, "save")
	succeed(t, "init-model", "--config", write(t, filepath.Join(dir, "config.json"), text), "--output", model)
	succeed(t, soloLine(model, data, "--steps", "1", "--save", save)...)
	for _, folder := range []string{model, save} {
		s, err := checkpoint.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			ModelType     string `json:"model_type"`
			Architectures []string
		}
		saved, _ := s.File(checkpoint.ConfigFile)
		if err := json.Unmarshal(saved, &config); err != nil || config.ModelType != "kimi_k2" || !slices.Equal(config.Architectures, []string{"DeepseekV3ForCausalLM"}) {
			t.Errorf("%s: got %+v, %v; want nil error and config.ModelType == \"kimi_k2\" and []string{\"DeepseekV3ForCausalLM\"}", folder, config, err)
		}
	}
}

// TestSoloKeepsTheChatTemplate checks that a trained model has the chat template of its first model, and
// a model card with the license of that model.
func TestSoloKeepsTheChatTemplate(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	kept := map[string]string{
		"chat_template.jinja":   "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
		"tokenizer_config.json": `{"chat_template": "{{ messages[0].content }}", "eos_token": null}`,
	}
	for name, text := range kept {
		write(t, filepath.Join(model, name), []byte(text))
	}
	write(t, filepath.Join(model, checkpoint.CardFile), []byte("---\ntags:\n- x\nlicense: \"mit\"\n---\n# mine\n"))
	save := filepath.Join(t.TempDir(), "save")
	for _, steps := range []string{"1", "2"} {
		succeed(t, soloLine(model, data, "--steps", steps, "--save", save)...)
	}
	for name, want := range kept {
		if got, err := os.ReadFile(filepath.Join(save, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	card, err := os.ReadFile(filepath.Join(save, checkpoint.CardFile))
	for _, want := range []string{"license: \"mit\"\n", "\n# save\n", "| Rounds | 2 |", fmt.Sprintf("| Digest | `%x` |", digest(t, save)), "of the batch of step 2", "--chat\n"} {
		if !strings.Contains(string(card), want) {
			t.Errorf("%v; no %q in\n%s", err, want, card)
		}
	}
}

func TestSoloSettingsOfAResume(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	_, other := toy(t)
	write(t, filepath.Join(other, "a.ds"), tokens(strings.Repeat("Some other text, of another length. ", 60)))
	save := filepath.Join(t.TempDir(), "save")
	line := func(model, data string, more ...string) []string {
		return soloLine(model, data, append([]string{"--save", save}, more...)...)
	}
	if out := succeed(t, line(model, data, "--steps", "3")...); strings.Contains(out, "resumed") || strings.Contains(out, "changed") {
		t.Errorf("a new training printed %s", out)
	}
	first := digest(t, save)
	for _, test := range []struct {
		name string
		line []string
	}{
		{"--seq-len", line(model, data, "--steps", "4", "--seq-len", "8")},
		{"--shuffle", line(model, data, "--steps", "4", "--shuffle", "7")},
		{"--data-path", line(model, other, "--steps", "4")},
		{"--optimizer", line(model, data, "--steps", "4", "--optimizer", "distro")},
	} {
		fail(t, exitFailure, test.name, test.line...)
	}
	if digest(t, save) != first {
		t.Error("a refused resume changed the saved training")
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(moved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	out := succeed(t, line(model, moved, "--steps", "4", "--lr", "0.5", "--total-batch", "3")...)
	resumed, _, _ := strings.Cut(out, "step 4/") // the progress that follows depends on the machine
	golden.Message(t, "resumed", errors.New(strings.TrimSuffix(resumed, "\n")))
	forget(t, save)
	code, _, problem := execute(t.Context(), line(model, data, "--steps", "5")...)
	if code != 0 || !strings.Contains(problem, "--shuffle") {
		t.Errorf("without settings: exit code %d: %s", code, problem)
	}
}

// forget removes the settings from a saved training.
func forget(t *testing.T, save string) {
	t.Helper()
	path := filepath.Join(save, train.OptimizerFile)
	state, err := train.ReadOptimizerState(path)
	if err != nil || state.Settings == "" {
		t.Fatalf("settings %q, %v", state.Settings, err)
	}
	state.Settings = ""
	if err := state.Write(path); err != nil {
		t.Fatal(err)
	}
}

// TestSoloInPartsIsTheSame checks that a training in parts equals a training in one part. The
// command sets the warmup.
func TestSoloInPartsIsTheSame(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	succeed(t, soloLine(model, data, "--steps", "30", "--save", whole)...)
	succeed(t, soloLine(model, data, "--steps", "10", "--save", parts)...)
	succeed(t, soloLine(model, data, "--steps", "30", "--save", parts)...)
	if log, err := os.ReadFile(filepath.Join(parts+eventsBeside, "events.jsonl")); err != nil || strings.Count(string(log), `"kind":"trained"`) != 30 || strings.Count(string(log), `"kind":"started"`) != 2 {
		t.Errorf("the event log next to the model: %v\n%s", err, log)
	}
	if digest(t, whole) != digest(t, parts) {
		t.Error("10 and 20 steps are not 30 steps")
	}
	// If the rate falls, the warmup stays the warmup of the first part.
	falling := filepath.Join(t.TempDir(), "falling")
	succeed(t, soloLine(model, data, "--lr-schedule", "cosine", "--steps", "4", "--save", falling)...)
	out := succeed(t, soloLine(model, data, "--lr-schedule", "cosine", "--steps", "14", "--save", falling)...)
	if !strings.Contains(out, "--steps is 14, was 4") {
		t.Errorf("printed %s", out)
	}
}

func TestFinishedSoloRunDoesNothing(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	save := filepath.Join(t.TempDir(), "save")
	succeed(t, soloLine(model, data, "--steps", "3", "--save", save)...)
	before, err := os.Stat(filepath.Join(save, train.OptimizerFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, steps := range []string{"3", "2"} {
		out := succeed(t, soloLine(model, data, "--steps", steps, "--save", save)...)
		if !strings.Contains(out, "--steps is "+steps) {
			t.Errorf("printed %s", out)
		}
	}
	if after, err := os.Stat(filepath.Join(save, train.OptimizerFile)); err != nil || !os.SameFile(before, after) {
		t.Errorf("the folder was written again, %v", err)
	}
}

func TestSoloChecksBeforehandThatItCanSave(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	dangling := filepath.Join(t.TempDir(), "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Skip(err)
	}
	code, out, problem := execute(t.Context(), soloLine(model, data, "--steps", "1", "--save", filepath.Join(dangling, "save"))...)
	if code != exitFailure || !strings.Contains(problem, "--save") || strings.Contains(out, "step 1/1") {
		t.Errorf("exit code %d: %s%s", code, out, problem)
	}
}

func TestSoloWithoutSaveSaysSo(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	if out := succeed(t, soloLine(model, data, "--steps", "1")...); !strings.HasPrefix(out, "nothing will be saved") {
		t.Errorf("printed %s", out)
	}
}

// TestTwoSolosDoNotShareAFolder starts a second training while the first training runs.
func TestTwoSolosDoNotShareAFolder(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	dir := t.TempDir()
	save := filepath.Join(dir, "save")
	write(t, filepath.Join(dir, ".save.lock"), nil) // of a process that was killed
	var second string
	out := writer(func(line []byte) {
		if bytes.HasPrefix(line, []byte("step 1/")) {
			_, _, second = execute(t.Context(), soloLine(model, data, "--steps", "1", "--save", save)...)
		}
	})
	var problem bytes.Buffer
	if code := run(t.Context(), soloLine(model, data, "--steps", "2", "--save", save), terminal{out, &problem}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &problem)
	}
	if !strings.Contains(second, "--save: "+save) {
		t.Errorf("the second process printed %q", second)
	}
	succeed(t, soloLine(model, data, "--steps", "3", "--save", save)...)
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSoloSavesBeforeAnError truncates the data while the training reads it.
func TestSoloSavesBeforeAnError(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	save := filepath.Join(t.TempDir(), "save")
	out := writer(func(line []byte) {
		if bytes.HasPrefix(line, []byte("step 2/")) {
			if err := os.Truncate(filepath.Join(data, "a.ds"), 100); err != nil {
				t.Error(err)
			}
		}
	})
	var problem bytes.Buffer
	code := run(t.Context(), soloLine(model, data, "--steps", "10", "--log-every", "1", "--save", save), terminal{out, &problem})
	if code != exitFailure || !strings.Contains(problem.String(), "a.ds") {
		t.Errorf("exit code %d: %s", code, &problem)
	}
	if s, err := checkpoint.ReadDir(save); err != nil || s.Step != 2 {
		t.Errorf("saved step %d, %v", s.Step, err)
	}
}

// TestSoloSavesBeforeItDiverges trains at a rate at which values overflow.
func TestSoloSavesBeforeItDiverges(t *testing.T) {
	requireTorch(t)
	for optimizer, rate := range map[string]string{"adamw": "1e37", "distro": "1e9"} {
		t.Run(optimizer, func(t *testing.T) {
			model, data := toy(t)
			save := filepath.Join(t.TempDir(), "save")
			code, out, problem := execute(t.Context(), soloLine(model, data, "--optimizer", optimizer, "--steps", "50", "--log-every", "1",
				"--lr", rate, "--warmup-steps", "0", "--save", save)...)
			if code != exitFailure || !strings.Contains(out, "step 1/50") {
				t.Fatalf("exit code %d, want a failure after the first step: %s%s", code, out, problem)
			}
			if s, err := checkpoint.ReadDir(save); err != nil || s.Step < 1 {
				t.Errorf("saved step %d, %v after %s", s.Step, err, problem)
			}
		})
	}
}

// TestInterruptBeforeAStepSavesNothing checks that no folder is left that the user would have to
// remove.
func TestInterruptBeforeAStepSavesNothing(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	save := filepath.Join(t.TempDir(), "save")
	ctx, cancel := context.WithCancel(t.Context())
	out := writer(func(line []byte) {
		if bytes.Contains(line, []byte("parameters")) {
			cancel()
		}
	})
	var problem bytes.Buffer
	if code := run(ctx, soloLine(model, data, "--steps", "9", "--save", save), terminal{out, &problem}); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, &problem)
	}
	if _, err := os.Stat(save); err == nil {
		t.Error("step 0 was saved")
	}
}

// TestSoloStartsAtAStep trains a middle step with its sequences, with the metrics of every tensor.
func TestSoloStartsAtAStep(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	for _, optimizer := range []string{"adamw", "distro"} {
		dir := t.TempDir()
		line := soloLine(model, data, "--optimizer", optimizer, "--steps", "4", "--start-step", "3", "--optim-stats", "--save", filepath.Join(dir, "save"))
		if out := succeed(t, line...); !strings.Contains(out, "step 2 of 4") {
			t.Errorf("%s: got %s; want text with \"step 2 of 4\"", optimizer, out)
		}
		var batches []event.Batch
		tensors := 0
		for e, err := range event.Read(filepath.Join(dir, "save"+eventsBeside, eventsFile)) {
			if err != nil {
				t.Fatal(err)
			}
			switch body := e.Body.(type) {
			case event.Trained:
				batches = append(batches, body.Batch)
			case event.OptimizerStats:
				tensors += len(body.Tensors)
			}
		}
		if len(batches) != 2 || batches[0][0] == 0 || batches[0][0] != 2*(batches[0][1]-batches[0][0]) || batches[1][0] != batches[0][1] || tensors < 4 {
			t.Errorf("%s: trained %v, metrics of %d tensors", optimizer, batches, tensors)
		}
	}
}

func TestGenerateWithoutTokenizer(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	succeed(t, "init-model", "--config", write(t, filepath.Join(dir, "config.json"), []byte(toyConfig)), "--tokenizer", "none", "--output", model)
	fail(t, exitFailure, "no tokenizer", "generate", "--model", model, "--prompt", "a")
}

// TestPrintStep checks that slow steps are printed although --log-every is larger, and that lines after the first one have
// the time left.
func TestPrintStep(t *testing.T) {
	var out strings.Builder
	begun := time.Unix(1000, 0)
	s := &solo{options: soloCommand{TotalBatch: 2, SeqLen: 8, Steps: 60, LogEvery: 10}, terminal: terminal{Out: &out}, started: begun}
	for step := range uint32(6) {
		s.step, s.trained = step+1, 16*int(step+1)
		s.printStep(2.5, begun.Add(time.Duration(step+1)*6*time.Second))
	}
	want := "step 1/60  loss 2.5000  3 tokens/s\n" +
		"step 3/60  loss 2.5000  3 tokens/s  6 min left\n" +
		"step 5/60  loss 2.5000  3 tokens/s  6 min left\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// TestWarnOfMemory checks that solo states the need if a micro batch probably does not fit, with the flags that reduce it.
func TestWarnOfMemory(t *testing.T) {
	of, err := model.Describe([]byte(toyConfig))
	if err != nil {
		t.Fatal(err)
	}
	c := &soloCommand{TotalBatch: 64, MicroBatch: 64, SeqLen: 32, soloOptimizer: soloOptimizer{Optimizer: "adamw"}}
	c.ComputeDtype = "f32"
	for available, warns := range map[uint64]bool{0: false, 1 << 20: true, 1 << 40: false} {
		var log strings.Builder
		c.warnOfMemory(c.training(of.Memory(), 0), available, slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Contains(log.String(), "needed=") && strings.Contains(log.String(), "--micro-batch 1 ("); got != warns {
			t.Errorf("with %d bytes: %q", available, log.String())
		}
	}
}
