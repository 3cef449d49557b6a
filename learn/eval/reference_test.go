package eval_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
)

// reference has the results of the harness for testdata: scripts/reference/eval_vectors.py.
type reference struct {
	Written int
	Cases   []struct {
		Task      string
		Fewshot   int
		Seed      uint64
		Totals    map[string]float64
		Documents []struct {
			Context        string
			SHA256         string
			Acc            *float64
			AccNorm        *float64 `json:"acc_norm"`
			ExactMatch     *float64 `json:"exact_match"`
			Text           string
			LogLikelihoods []float64
		}
	}
}

func readReference(t *testing.T) (r reference) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open reads the task of a case. The harness calls the subjects of a task tasks.
func open(t *testing.T, name string, shots int, seed uint64) (exam *eval.Exam, questions []int) {
	t.Helper()
	base, subject := name, ""
	for _, group := range []string{"mmlu_pro", "mmlu"} {
		if rest, found := strings.CutPrefix(name, group+"_"); found {
			base, subject = group, rest
			break
		}
	}
	tasks, err := eval.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	exam, err = eval.Library{Folder: "testdata/data"}.Open(t.Context(), tasks[0], eval.Options{Fewshot: &shots, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for i := range exam.Len() {
		if q := exam.Question(i); subject == "" || strings.ReplaceAll(q.Subject, " ", "_") == subject {
			questions = append(questions, i)
		}
	}
	return exam, questions
}

// TestContexts compares every prompt, with its examples.
func TestContexts(t *testing.T) {
	for _, c := range readReference(t).Cases {
		exam, questions := open(t, c.Task, c.Fewshot, c.Seed)
		if len(questions) != len(c.Documents) {
			t.Fatalf("%s: %d questions, want %d", c.Task, len(questions), len(c.Documents))
		}
		for i, want := range c.Documents {
			context := exam.Question(questions[i]).Context
			if want.Context != "" && context != want.Context {
				t.Fatalf("%s, %d examples, question %d: context\n%q, want\n%q", c.Task, c.Fewshot, i, context, want.Context)
			}
			if sum := sha256.Sum256([]byte(context)); hex.EncodeToString(sum[:]) != want.SHA256 {
				t.Errorf("%s, %d examples, question %d: a different context: %q", c.Task, c.Fewshot, i, context)
			}
		}
	}
}

// reader is the model of testdata.
func reader(t *testing.T, written int) eval.Reader {
	t.Helper()
	err := torch.Load(torch.Options{Threads: 1})
	if torch.Missing(err) && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1" {
		t.Skipf("needs libtorch: %v", err)
	}
	snapshot, err := checkpoint.ReadDir("testdata/model")
	if err != nil {
		t.Fatal(err)
	}
	lm, err := train.NewEvaluator(t.Context(), train.Options{Model: snapshot, MicroBatch: 1, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lm.Close(); err != nil {
			t.Error(err)
		}
	})
	coder, err := tokenizer.Load(filepath.Join("testdata/model", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return eval.Reader{LM: lm, Coder: coder, Stop: []int32{1}, MaxWritten: written}
}

var unreadable = regexp.MustCompile("\ufffd+")

// plain replaces consecutive replacement characters by one: decoders differ in how many they write
// for invalid bytes.
func plain(text string) string { return unreadable.ReplaceAllString(text, "?") }

// TestScores compares every answer, and the scores of all answers together.
func TestScores(t *testing.T) {
	all := readReference(t)
	r := reader(t, all.Written)
	answers, worst := 0, 0.0
	for _, c := range all.Cases {
		exam, questions := open(t, c.Task, c.Fewshot, c.Seed)
		var tally eval.Tally
		for i, want := range c.Documents {
			got, err := r.Ask(t.Context(), exam.Question(questions[i]))
			if err != nil {
				t.Fatal(err)
			}
			tally.Add(exam.Question(questions[i]), got)
			answers++
			if plain(got.Text) != plain(want.Text) {
				t.Errorf("%s, %d examples, question %d: wrote %q, want %q", c.Task, c.Fewshot, i, got.Text, want.Text)
			}
			if len(got.LogLikelihoods) != len(want.LogLikelihoods) {
				t.Fatalf("%s: %d choices, want %d", c.Task, len(got.LogLikelihoods), len(want.LogLikelihoods))
			}
			for j, l := range got.LogLikelihoods {
				apart := math.Abs(l - want.LogLikelihoods[j])
				if worst = max(worst, apart/math.Abs(l)); !(apart <= 2e-5*math.Abs(l)) {
					t.Errorf("%s, %d examples, question %d, choice %d: %v, want %v", c.Task, c.Fewshot, i, j, l, want.LogLikelihoods[j])
				}
			}
			for name, score := range map[string]*float64{"acc": want.Acc, "acc_norm": want.AccNorm, "exact_match": want.ExactMatch} {
				if score != nil && got.Scores[name] != *score {
					t.Errorf("%s, %d examples, question %d: %s %v, want %v", c.Task, c.Fewshot, i, name, got.Scores[name], *score)
				}
			}
		}
		for name, mean := range tally.Scores(exam.Metrics()) {
			want, found := c.Totals[name]
			if !found || math.Abs(mean-want) > 1e-12 {
				t.Errorf("%s, %d examples: %s %v, want %v", c.Task, c.Fewshot, name, mean, want)
			}
		}
	}
	t.Logf("%d answers, log-likelihoods at most %.1e apart", answers, worst)
	if answers != 192 {
		t.Errorf("%d answers", answers)
	}
}

func TestErrorsOfQuestions(t *testing.T) {
	r := reader(t, 0)
	q := eval.Question{Task: "t", Context: "a", Choices: []string{strings.Repeat("otter 3 x ", 600), "b"}}
	if _, err := r.Ask(t.Context(), q); !errors.Is(err, eval.ErrTooLong) {
		t.Errorf("error %v", err)
	}
	if _, err := r.Ask(t.Context(), eval.Question{Task: "t", Context: " \n", Choices: []string{"b"}}); !errors.Is(err, eval.ErrDocument) {
		t.Errorf("error %v", err)
	}
	begin := int32(0)
	r.Begin = &begin
	if a, err := r.Ask(t.Context(), eval.Question{Task: "t", Context: "", Choices: []string{"b", "ccc"}}); err != nil || len(a.LogLikelihoods) != 2 {
		t.Errorf("got %+v, %v; want nil error and len(a.LogLikelihoods) == 2", a, err)
	}
}

func TestGoOn(t *testing.T) {
	r := reader(t, 12)
	one, err := r.GoOn(t.Context(), eval.Prompt(3), 5)
	if err != nil || one == "" {
		t.Fatalf("got %q, %v; want nil error and one != \"\"", one, err)
	}
	again, _ := r.GoOn(t.Context(), eval.Prompt(3), 5)
	other, _ := r.GoOn(t.Context(), eval.Prompt(3), 6)
	if one != again || one == other {
		t.Errorf("seeds 5, 5, 6 wrote %q, %q, %q", one, again, other)
	}
}
