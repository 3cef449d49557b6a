package eval

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func place(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func named(t *testing.T, name string) Task {
	t.Helper()
	tasks, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return tasks[0]
}

func TestParse(t *testing.T) {
	tasks, err := Parse("arc-easy, MMLU_pro,piqa")
	if err != nil || len(tasks) != 3 || tasks[0].Name != "arc_easy" || tasks[1].Name != "mmlu_pro" {
		t.Errorf("got %v, %v; want nil error and len(tasks) == 3 and tasks[0].Name == \"arc_easy\" and tasks[1].Name == \"mmlu_pro\"", tasks, err)
	}
	for _, bad := range []string{"", "arc", "piqa,piqa", "piqa,"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is not an error", bad)
		}
	}
}

func TestMaxDocs(t *testing.T) {
	count := func(name string, limit int) map[string]int {
		t.Helper()
		none := 0
		exam, err := Library{Folder: "testdata/data"}.Open(t.Context(), named(t, name), Options{Fewshot: &none, MaxDocs: limit})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for i := range exam.Len() {
			counts[exam.Question(i).Subject]++
		}
		return counts
	}
	if got := count("piqa", 5); !maps.Equal(got, map[string]int{"": 5}) {
		t.Errorf("piqa: %v", got)
	}
	if got := count("mmlu", 5); !maps.Equal(got, map[string]int{"abstract_algebra": 3, "us_foreign_policy": 2}) {
		t.Errorf("mmlu: %v", got)
	}
	if got := count("mmlu", 100); !maps.Equal(got, map[string]int{"abstract_algebra": 6, "us_foreign_policy": 6}) {
		t.Errorf("mmlu: %v", got)
	}
}

// TestQuestionIsNoExampleOfItself has a pool with hardly more than the question.
func TestQuestionIsNoExampleOfItself(t *testing.T) {
	dir := t.TempDir()
	const own = `{"goal":"own","sol1":"a","sol2":"b","label":0}` + "\n"
	place(t, filepath.Join(dir, "piqa", "validation.jsonl"), own)
	pool := strings.Repeat(own, 5) + `{"goal":"x","sol1":"a","sol2":"b","label":1}` + "\n" + `{"goal":"y","sol1":"a","sol2":"b","label":1}` + "\n"
	place(t, filepath.Join(dir, "piqa", "train.jsonl"), pool)
	for seed := range uint64(20) {
		n := 2
		exam, err := Library{Folder: dir}.Open(t.Context(), named(t, "piqa"), Options{Fewshot: &n, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if q := exam.Question(0); strings.Count(q.Context, "Question: own\n") != 1 || strings.Count(q.Context, "Question: x\nAnswer: b\n\n") != 1 {
			t.Fatalf("context %q", q.Context)
		}
	}
	n := 3
	if _, err := (Library{Folder: dir}).Open(t.Context(), named(t, "piqa"), Options{Fewshot: &n}); !errors.Is(err, errExamples) {
		t.Errorf("error %v", err)
	}
}

func TestDocumentsThatAreWrong(t *testing.T) {
	for _, text := range []string{
		`{"goal":"g","sol1":"a","sol2":"b","label":-1}`,
		`{"goal":"g","sol1":"a","sol2":"b","label":2}`,
		`{"goal":"g","sol1":"a","label":1}`,
		`{"goal":["g"],"sol1":"a","sol2":"b","label":1}`,
		`[1]`,
		``,
	} {
		dir := t.TempDir()
		place(t, filepath.Join(dir, "baber", "piqa", "validation.jsonl"), text)
		_, err := Library{Folder: dir}.Open(t.Context(), named(t, "piqa"), Options{})
		if !errors.Is(err, ErrDocument) {
			t.Errorf("%s: error %v, want ErrDocument", text, err)
		}
		golden.Message(t, text, err)
	}
}

func TestFindsSplits(t *testing.T) {
	for path, want := range map[string]bool{
		"ARC-Easy/test-00000-of-00001.parquet": true, "ARC-Easy/test/0000.parquet": true, "data/ARC-Easy/test.jsonl": true,
		"ARC-Challenge/test-00000-of-00001.parquet": false, "ARC-Easy/train-0.parquet": false, "ARC-Easy/test.csv": false, "test.jsonl": false,
		"ARC-Easy/testing.jsonl": false,
	} {
		if got := belongs(path, "ARC-Easy", "test"); got != want {
			t.Errorf("%s: got %v; want %v", path, got, want)
		}
	}
	if !belongs("test.jsonl", "", "test") || !belongs("data/test-1-of-2.parquet", "", "test") {
		t.Error("a data set without parts is not found")
	}
	_, err := Library{Folder: t.TempDir()}.Open(t.Context(), named(t, "boolq"), Options{})
	if !errors.Is(err, errNoData) || !strings.Contains(err.Error(), "aps/super_glue/boolq/validation.jsonl") {
		t.Errorf("error %v", err)
	}
}

func TestHubIsAskedForTheConvertedBranch(t *testing.T) {
	var asked []string
	fetch := func(_ context.Context, repo, revision string, match func(string) bool) (string, error) {
		asked = append(asked, repo+"@"+revision)
		dir := t.TempDir()
		if revision != "" && match("default/validation/0000.parquet") {
			place(t, filepath.Join(dir, "default/validation/x.jsonl"), `{"goal":"g","sol1":"a","sol2":"b","label":1}`)
		}
		return dir, nil
	}
	exam, err := Library{Fetch: fetch}.Open(t.Context(), named(t, "piqa"), Options{})
	if err != nil || exam.Len() != 1 || strings.Join(asked, " ") != "baber/piqa@ baber/piqa@refs/convert/parquet" {
		t.Errorf("%v, asked for %v", err, asked)
	}
}

func TestCapitalized(t *testing.T) {
	for text, want := range map[string]string{"": "", "a BC": "A bc", "éCLAIR": "Éclair", " X": " x"} {
		if got := capitalized(text); got != want {
			t.Errorf("%q: got %q; want %q", text, got, want)
		}
	}
}

// FuzzLines reads arbitrary lines.
func FuzzLines(f *testing.F) {
	f.Add(`{"question":"q","choices":{"text":["a"],"label":["A"]},"answerKey":"A"}`)
	f.Add(`{"question":1e400,"choices":{"text":[[]],"label":null}}`)
	fuzztest.Run(f, func(t *testing.T, text string) {
		for _, task := range tasks {
			s := split{columns: task.columns, limit: 10}
			if s.readLines(t.Context(), strings.NewReader(text)) != nil {
				return
			}
			for _, row := range s.rows {
				if d, err := task.read(newRecord(row)); err == nil && d.answer < 0 {
					t.Errorf("%s: %+v", task.Name, d)
				}
			}
		}
	})
}
