package chat

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// randomVariable names a file that scripts/reference/chat_random.py wrote. Without it, the test reads a sample.
const randomVariable = "PSYCHE_CHAT_RANDOM"

// TestRandomTemplates compares the texts of random templates with transformers. A template that only this package refuses
// must be an error that wraps errUnsupported or errTooMuch.
func TestRandomTemplates(t *testing.T) {
	name := os.Getenv(randomVariable)
	if name == "" {
		name = "testdata/random.jsonl"
	}
	made := readRandom(t, name)
	counts, refusals := map[string]int{}, map[string]int{}
	for _, v := range made.vectors {
		text, err := render(v.Template, made.inputs[v.Chat])
		verdict := v.verdict(text, err)
		if counts[verdict]++; verdict == "differ" {
			t.Errorf("%s\nchat %d: %q, %v; the reference: %q, %s", v.Template, v.Chat, text, err, v.Text, v.Error)
		}
		if verdict == "refused only here" {
			refusals[err.Error()]++
		}
	}
	t.Logf("%v", counts)
	for text, n := range refusals {
		t.Logf("%5d %s", n, text)
	}
	if counts["equal"] == 0 || counts["refused only here"]*20 > counts["equal"] {
		t.Errorf("%v: this package alone refuses too many templates", counts)
	}
}

type randomVectors struct {
	inputs  []Input
	vectors []randomVector
}

// readRandom reads a file of scripts/reference/chat_random.py.
func readRandom(t testing.TB, name string) (made randomVectors) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var head struct {
		Now    time.Time
		Tokens map[string]string
		Tools  json.RawMessage
		Chats  []json.RawMessage
	}
	decoder := json.NewDecoder(bufio.NewReader(file))
	if err := decoder.Decode(&head); err != nil {
		t.Fatal(err)
	}
	for _, chat := range head.Chats {
		made.inputs = append(made.inputs, Input{Messages: readMessages(t, chat), Tools: head.Tools, Tokens: head.Tokens, Now: head.Now})
	}
	for {
		var v randomVector
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return made
		} else if err != nil {
			t.Fatal(err)
		}
		made.vectors = append(made.vectors, v)
	}
}

type randomVector struct {
	Template, Text, Error string
	Chat                  int
}

// verdict compares a text or an error with the reference. Texts with addresses of Python are not reproducible.
func (v randomVector) verdict(text string, err error) string {
	switch {
	case v.Error != "" && err != nil:
		return "refused by both"
	case v.Error == "" && (errors.Is(err, errUnsupported) || errors.Is(err, errTooMuch)):
		return "refused only here"
	case v.Error == "" && err == nil && text == v.Text:
		return "equal"
	case strings.Contains(v.Text, " at 0x") && err != nil:
		return "refused only here"
	}
	return "differ"
}
