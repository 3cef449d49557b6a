package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type features struct {
	Now             time.Time
	Tokens          map[string]string
	Messages, Tools json.RawMessage
	Vectors         []struct{ Name, Template, Text, Error string }
}

// readFeatures reads the vectors of scripts/reference/chat_features.py.
func readFeatures(t testing.TB) (made features) {
	t.Helper()
	data, err := os.ReadFile("testdata/features.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &made); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestFeatureVectors compares the texts of small templates with transformers.
func TestFeatureVectors(t *testing.T) {
	made := readFeatures(t)
	in := Input{Messages: readMessages(t, made.Messages), Tools: made.Tools, Tokens: made.Tokens, Now: made.Now}
	for _, v := range made.Vectors {
		text, err := render(v.Template, in)
		if (err != nil) != (v.Error != "") || text != v.Text {
			t.Errorf("%s: %s:\n%q, %v; the reference:\n%q, %s", v.Name, v.Template, text, err, v.Text, v.Error)
		}
	}
}

// TestConversationFiles compares conversations in files with the texts that scripts/reference/chat_features.py wrote.
func TestConversationFiles(t *testing.T) {
	templates, err := filepath.Glob("testdata/conversations/*.jinja")
	if err != nil || len(templates) == 0 {
		t.Fatalf("%d templates, %v", len(templates), err)
	}
	for _, name := range templates {
		base := strings.TrimSuffix(name, ".jinja")
		read := func(extension string) []byte {
			data, err := os.ReadFile(base + extension)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		var made struct{ Messages json.RawMessage }
		if err := json.Unmarshal(read(".jsonl"), &made); err != nil {
			t.Fatal(err)
		}
		in := Input{Messages: readMessages(t, made.Messages), Tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
		if text, err := render(string(read(".jinja")), in); err != nil || text != string(read(".txt")) {
			t.Errorf("%s: %q, %v; want %q", base, text, err, read(".txt"))
		}
	}
}
