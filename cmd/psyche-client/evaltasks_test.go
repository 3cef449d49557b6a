package main

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/record/event"
)

const (
	evalModel = "../../learn/eval/testdata/model"
	evalData  = "../../learn/eval/testdata/data"
)

// evaluateTasks runs the command and returns its decoded JSON output.
func evaluateTasks(t *testing.T, more ...string) (all evaluations) {
	t.Helper()
	out := succeed(t, append([]string{"evaluate", "--model", evalModel, "--threads", "1", "--json"}, more...)...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

func TestEvaluateTasks(t *testing.T) {
	requireTorch(t)
	dir := t.TempDir()
	all := evaluateTasks(t, "--eval-tasks", "piqa,mmlu", "--eval-data", evalData, "--eval-fewshot", "5", "--samples", filepath.Join(dir, "samples.jsonl"), "--events-dir", dir)
	// The expected values come from lm-evaluation-harness: learn/eval/testdata/vectors.json.
	if got := all.Tasks["piqa"]; got.Scores["acc"] != 5./12 || got.Scores["acc_norm"] != 4./12 || got.Documents != 12 || got.Fewshot != 5 {
		t.Errorf("piqa: %+v", got)
	}
	if got := all.Tasks["mmlu"]; got.Scores["acc"] != 1./12 || len(got.Scores) != 1 {
		t.Errorf("mmlu: %+v", got)
	}
	if all.evaluation != nil {
		t.Errorf("a loss of no data: %+v", all.evaluation)
	}
	samples, err := os.Open(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = samples.Close() }()
	right, lines := 0.0, 0
	for line := bufio.NewScanner(samples); line.Scan(); lines++ {
		var s sample
		if err := json.Unmarshal(line.Bytes(), &s); err != nil || len(s.LogLikelihoods) != len(s.Choices) || s.Context == "" {
			t.Fatalf("%s: got %v; want nil error and len(s.LogLikelihoods) == len(s.Choices) and s.Context != \"\"", line.Text(), err)
		}
		if s.Task == "piqa" {
			right += s.Scores["acc"]
		}
	}
	if lines != 24 || right != 5 {
		t.Errorf("%d answers, %v of piqa right", lines, right)
	}
	var tasks, kinds []string
	for e, err := range event.Read(filepath.Join(dir, "events.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Body.Kind())
		if body, ok := e.Body.(event.Evaluated); ok {
			tasks = append(tasks, body.Task)
		}
	}
	if strings.Join(tasks, " ") != "piqa mmlu" || kinds[0] != "started" {
		t.Errorf("events %v of %v", kinds, tasks)
	}
	again := evaluateTasks(t, "--eval-tasks", "piqa", "--eval-data", evalData, "--eval-task-max-docs", "3", "--prompt-task")
	if again.Tasks["piqa"].Documents != 3 || again.Tasks["piqa"].Fewshot != 0 || again.Text == "" {
		t.Errorf("got %+v; want again.Tasks[\"piqa\"].Documents == 3 and again.Tasks[\"piqa\"].Fewshot == 0 and again.Text != \"\"", again)
	}
}

func TestEvaluateTasksOfTheHub(t *testing.T) {
	requireTorch(t)
	server := hubtest.New()
	defer server.Close()
	files := map[string][]byte{"README.md": []byte("a data set")}
	root := filepath.Join(evalData, "allenai", "ai2_arc")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Put("allenai/ai2_arc", files)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "")
	line := []string{"--eval-tasks", "arc_easy", "--eval-fewshot", "5"}
	if got := evaluateTasks(t, line...).Tasks["arc_easy"]; got.Scores["acc_norm"] != 4./12 || got.Scores["acc"] != 1./12 {
		t.Errorf("got %+v; want got.Scores[\"acc_norm\"] == 4. / 12 and got.Scores[\"acc\"] == 1. / 12", got)
	}
	for _, request := range server.Requests() {
		if strings.Contains(request, "README") || strings.Contains(request, "ARC-Challenge") {
			t.Errorf("asked for %s", request)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if got := evaluateTasks(t, line...).Tasks["arc_easy"]; got.Scores["acc_norm"] != 4./12 {
		t.Errorf("from the cache: %+v", got)
	}
}

func TestEvaluateRejects(t *testing.T) {
	model, _ := toy(t)
	fail(t, exitUsage, "no tasks", "evaluate", "--model", model)
	fail(t, exitUsage, "unknown task", "evaluate", "--model", model, "--eval-tasks", "arc")
	fail(t, exitUsage, "no documents", "evaluate", "--model", model, "--eval-tasks", "piqa", "--eval-task-max-docs", "0")
	fail(t, exitFailure, "missing files", "evaluate", "--model", model, "--eval-tasks", "piqa", "--eval-data", t.TempDir())
	if err := os.Remove(filepath.Join(model, tokenizerFile)); err != nil {
		t.Fatal(err)
	}
	fail(t, exitFailure, "no tokenizer", "evaluate", "--model", model, "--eval-tasks", "piqa", "--eval-data", evalData)
}
