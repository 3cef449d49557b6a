package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var facts = Facts{RunID: "my run", Epoch: 3, Step: 120, DataIndex: 9600, MaxSeqLen: 2048, Digest: strings.Repeat("ab", 32)}

// TestFactsAreBesideTheCheckpoint wants facts to be found, and to change neither the
// checkpoint nor its digest.
func TestFactsAreBesideTheCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := ReadFacts(dir); !errors.Is(err, ErrNoFacts) {
		t.Errorf("error = %v, want ErrNoFacts", err)
	}
	for range 2 {
		if err := WriteDir(dir, sample(120), facts.Extra()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFacts(dir)
	if err != nil || got != facts {
		t.Errorf("facts %+v, %v", got, err)
	}
	s, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(120), s); diff != "" {
		t.Error(diff)
	}
}

func TestParseFactsRejects(t *testing.T) {
	for _, text := range []string{"", "[]", "{}", `{"run_id":"a","digest":"ab"}`, `{"run_id":"a","step":-1}`, `{"run_id":"a","step":4294967296}`, strings.Repeat(" ", maxFactsSize+1)} {
		if _, err := ParseFacts([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: error = %v, want ErrInvalid", text, err)
		}
	}
}

func TestCardGolden(t *testing.T) {
	hostile := facts
	hostile.RunID = "a | b\n# <script>"
	for _, test := range []struct {
		name  string
		facts Facts
	}{{"card.md", facts}, {"card-hostile.md", hostile}} {
		got := Card(test.facts, []byte(config))
		path := filepath.Join("testdata", test.name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", test.name, diff)
		}
		if !IsOwnCard(got) || IsOwnCard([]byte("# mine")) {
			t.Error("own and foreign cards are confused")
		}
	}
}
