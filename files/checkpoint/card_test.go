package checkpoint

import (
	"errors"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
)

// fullCard is a card with all fields.
var fullCard = Card{
	Facts: facts, Title: "Tiny stories", About: "A test, with friends.", BaseModel: "owner/first.model", License: "apache-2.0",
	Optimizer: "4 local steps of muon per round",
	Data:      []CardSource{{"the token file", "https://example.org/a.bin"}, {"a data server of the run", ""}},
	Datasets:  []string{"owner/texts", "owner/texts", "bad name"},
	Loss:      2.6571, LossOf: "median of the losses that members reported for round 120",
	Run: strings.Repeat("ab", 32), LogHash: strings.Repeat("cd", 32), LogEntry: 901,
	Counted: CardRounds{First: 1, Last: 120, Rounds: 120, Complete: true},
	Members: []CardMember{{ID: "B1", Rounds: 20, Sequences: 100}, {ID: "A1", Name: "Ada Lovelace", Rounds: 120, Sequences: 700}},
}

// hostile returns a card whose texts come from a hostile member.
func hostile(text string) Card {
	c := fullCard
	c.RunID, c.Title, c.About, c.BaseModel, c.License, c.Optimizer, c.LossOf = text, text, text, text, text, text, text
	c.Run, c.LogHash, c.Digest = text+"a", text+"a", text
	c.Data, c.Datasets = []CardSource{{text, text}}, []string{text}
	c.Members = []CardMember{{ID: text, Name: text, Rounds: 1, Sequences: 1}}
	return c
}

func TestCardGolden(t *testing.T) {
	model := cardModel{architecture: "LlamaForCausalLM", parameters: 2_300_000, tokenizer: true, chat: true}
	for name, c := range map[string]Card{
		"card.md": {Facts: facts}, "card-full.md": fullCard,
		"card-hostile.md": hostile("a | b\n# <script>\n---\n![x](http://x) [y](javascript:z) `c` www.example.org\u202e"),
	} {
		got := c.text(model)
		golden.Compare(t, name, got)
		if !IsOwnCard(got) || IsOwnCard([]byte("# mine")) {
			t.Errorf("%s: own and foreign cards are confused", name)
		}
	}
}

// FuzzCard checks that no text of a member changes the structure of a card, and that texts are bounded.
func FuzzCard(f *testing.F) {
	for _, text := range []string{"Ada", "---\nlicense: x", "a|b", "`", "\\", "[a](b)", "<img src=x>", "&#60;", "1. www.x.y", "\r\u2028\u202e", "\xff", "~~~"} {
		f.Add(text)
	}
	model := cardModel{architecture: "LlamaForCausalLM", tokenizer: true}
	fuzztest.Run(f, func(t *testing.T, text string) {
		got := string(hostile(text).text(model))
		lines := strings.Split(got, "\n")
		end := 0
		for i, line := range lines[1:] {
			if line == "---" {
				end = i + 1
				break
			}
		}
		for _, line := range lines[1:end] {
			key, value, _ := strings.Cut(strings.TrimPrefix(line, "- "), ":")
			if strings.ContainsAny(key+value, "#&*!|>'%@`{}[]") {
				t.Errorf("metadata %q of %q", line, text)
			}
		}
		for _, line := range lines[end+1:] {
			if strings.HasPrefix(line, "| ") && strings.Count(line, "|") != 3 && strings.Count(line, "|") != 5 || strings.HasPrefix(line, "---") {
				t.Errorf("line %q of %q", line, text)
			}
		}
		span := regexp.MustCompile("`[^`\n]+`")
		got = span.ReplaceAllString(got, "")
		if strings.Count(got, "\n# ") != 1 || strings.Count(got, "\n## ") != 2 || strings.Count(got, "<") != 1 || strings.Contains(got, "](") || strings.Contains(got, "://x") || strings.Count(got, "`") != 18 {
			t.Errorf("%q changes the card:\n%s", text, got)
		}
		if strings.Count(got, "\n---\n") != 1 || len(got) > 64<<10 || !utf8.ValidString(got) {
			t.Errorf("%q: %d bytes", text, len(got))
		}
		if shown := html.UnescapeString(prose(text)); shown != oneLine(text) {
			t.Errorf("%q is shown as %q", text, shown)
		}
	})
}

// TestWriteCard checks that a generated card belongs to its folder without changing the model, and that
// the card of a person is never replaced.
func TestWriteCard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	if err := WriteDir(dir, sample(120), facts.Extra()); err != nil {
		t.Fatal(err)
	}
	before, err := DigestDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CardFile)
	for range 2 {
		if err := WriteCard(dir, fullCard); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "Ada Lovelace") || !strings.Contains(string(text), "| Parameters | ") {
		t.Errorf("%v, card\n%s", err, text)
	}
	if after, err := DigestDir(t.Context(), dir, nil); err != nil || after != before {
		t.Errorf("the card changes the digest: %x, %x, %v", before, after, err)
	}
	if held, err := CardOf(dir, facts); err != nil || string(held) != string(text) {
		t.Errorf("the folder's card is not used: %v, %s", err, held)
	}
	if err := CheckTarget(dir); err != nil {
		t.Errorf("a generated card is in the way: %v", err)
	}
	if others, err := filepath.Glob(dir + "*"); err != nil || len(others) != 1 {
		t.Errorf("left over: %v, %v", others, err)
	}

	mine := []byte("# mine\n")
	if err := os.WriteFile(path, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteCard(dir, fullCard); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(mine) {
		t.Errorf("the user's card is now %q, %v", text, err)
	}
	if err := CheckTarget(dir); !errors.Is(err, errOccupied) {
		t.Errorf("a folder with a user's card may be replaced: %v", err)
	}
	if err := RemoveDir(dir); !errors.Is(err, errOccupied) {
		t.Errorf("a folder with a user's card may be removed: %v", err)
	}
	if err := errors.Join(os.Remove(path), WriteCard(dir, fullCard), RemoveDir(dir)); err != nil {
		t.Errorf("a folder with a generated card cannot be removed: %v", err)
	}
}

// TestTrainingKeepsCard checks that a training, which saves into the same folder again, keeps the card of a person who
// followed the hint in the generated card, and that the folder is not removed.
func TestTrainingKeepsCard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	state := Extra{optimizerFile, func(path string) error { return safetensors.Write(path, nil, nil) }}
	if err := errors.Join(WriteDir(dir, sample(1), state), WriteCard(dir, fullCard)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, CardFile)
	generated, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mine := strings.ReplaceAll(string(generated), cardMark, "")
	if err := os.WriteFile(path, []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(CheckTarget(dir), WriteDir(dir, sample(2), state), WriteCard(dir, fullCard)); err != nil {
		t.Fatalf("the training cannot be saved: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != mine {
		t.Errorf("the user's card is now %q, %v", text, err)
	}
	if s, err := ReadDir(dir); err != nil || s.Step != 2 {
		t.Errorf("step %d, %v", s.Step, err)
	}
	if err := RemoveDir(dir); !errors.Is(err, errOccupied) {
		t.Errorf("a folder with a user's card may be removed: %v", err)
	}
}

// TestWriteCardLeavesOtherFiles checks that no file of the user next to the folder is removed.
func TestWriteCardLeavesOtherFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	if err := WriteDir(dir, sample(120), facts.Extra()); err != nil {
		t.Fatal(err)
	}
	other := dir + ".card"
	if err := errors.Join(os.WriteFile(other, []byte("mine"), 0o600), WriteCard(dir, fullCard)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "mine" {
		t.Errorf("%s: got %q, %v; want nil error and string(text) == \"mine\"", other, text, err)
	}
}
