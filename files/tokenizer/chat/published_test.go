package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unicode/utf8"
)

// publishedVariable names a folder that scripts/reference/chat_compare.py wrote.
const publishedVariable = "PSYCHE_CHAT_TEMPLATES"

// mostRefused limits the texts that transformers renders but this package refuses.
const mostRefused = 10

// TestPublishedTemplates compares the texts of templates of published models with transformers.
func TestPublishedTemplates(t *testing.T) {
	folder := os.Getenv(publishedVariable)
	if folder == "" {
		t.Skipf("%s is not set to a folder made by scripts/reference/chat_compare.py", publishedVariable)
	}
	data, err := os.ReadFile(filepath.Join(folder, "conversations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Now           time.Time
		Tokens        map[string]string
		Tools         json.RawMessage
		Conversations []struct {
			Messages      json.RawMessage
			Tools, Prompt bool
		}
	}
	if err := json.Unmarshal(data, &made); err != nil {
		t.Fatal(err)
	}
	inputs := make([]Input, len(made.Conversations))
	for i, c := range made.Conversations {
		inputs[i] = Input{Messages: readMessages(t, c.Messages), AddGenerationPrompt: c.Prompt, Tokens: made.Tokens, Now: made.Now}
		if c.Tools {
			inputs[i].Tools = made.Tools
		}
	}
	file, err := os.Open(filepath.Join(folder, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	counts := publishedCounts{}
	for decoder := json.NewDecoder(bufio.NewReader(file)); decoder.More(); counts.templates++ {
		var one published
		if err := decoder.Decode(&one); err != nil {
			t.Fatal(err)
		}
		counts.compare(t, one, inputs)
	}
	t.Logf("%d templates, %d texts: %d equal, %d refused by both, %d differ, %d refused only here",
		counts.templates, counts.templates*len(inputs), counts.equal, counts.bothRefuse, counts.differ, counts.refused)
	if counts.templates == 0 || counts.refused > mostRefused {
		t.Errorf("%d templates, %d texts refused only here, want at most %d", counts.templates, counts.refused, mostRefused)
	}
}

// published is a template with the text or the error of each conversation.
type published struct {
	Name, Template string
	Results        []struct {
		Text   *string
		Error  string
		Marked [][2]int // characters that the template marks as generated
	}
}

type publishedCounts struct{ templates, equal, bothRefuse, differ, refused int }

// compare renders each conversation. A text for a conversation that transformers refuses counts as
// different.
func (c *publishedCounts) compare(t *testing.T, one published, inputs []Input) {
	for i, want := range one.Results {
		text, marked, err := renderMarked(one.Template, inputs[i])
		switch {
		case err != nil && want.Text == nil:
			c.bothRefuse++
		case err != nil:
			c.refused++
			t.Logf("%s, conversation %d: refused: %v", one.Name, i, err)
		case want.Text == nil:
			c.differ++
			t.Errorf("%s, conversation %d: %.300q; the reference refuses: %s", one.Name, i, text, want.Error)
		case text != *want.Text:
			c.differ++
			t.Errorf("%s, conversation %d:\n%.2000q\nwant\n%.2000q", one.Name, i, text, *want.Text)
		case !slices.Equal(marked, want.Marked):
			c.differ++
			t.Errorf("%s, conversation %d: marked %v, want %v", one.Name, i, marked, want.Marked)
		default:
			c.equal++
		}
	}
}

// renderMarked returns the text of a conversation, and the characters that the template marks.
func renderMarked(source string, in Input) (text string, marked [][2]int, err error) {
	template, err := Parse(source)
	if err != nil {
		return "", nil, err
	}
	text, spans, err := template.render(in)
	for _, of := range spans {
		marked = append(marked, [2]int{utf8.RuneCountInString(text[:of.start]), utf8.RuneCountInString(text[:of.end])})
	}
	return text, marked, err
}
