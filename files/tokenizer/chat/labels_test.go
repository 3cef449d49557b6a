package chat

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// labelled is the tokenizer of scripts/reference/chat_labels.py.
func labelled(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	packed, err := os.ReadFile("testdata/labels-tokenizer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	coder, err := tokenizer.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return coder
}

// TestEncodeForTraining compares with what transformers, and scripts that make samples, say is the assistant's.
func TestEncodeForTraining(t *testing.T) {
	coder := labelled(t)
	content, err := os.ReadFile("testdata/labels.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Template string
		Messages       []Message
		IDs            []int32
		Learned        []int
	}
	if err := json.Unmarshal(content, &vectors); err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		template, err := Parse(v.Template)
		if err != nil {
			t.Fatal(err)
		}
		ids, learned, err := template.EncodeForTraining(coder, Input{Messages: v.Messages})
		want := make([]bool, len(v.Learned))
		for i, of := range v.Learned {
			want[i] = of == 1
		}
		if err != nil || !slices.Equal(ids, v.IDs) || !slices.Equal(learned, want) {
			t.Errorf("%d, %s: %v\n%v %v\nwant\n%v %v", i, v.Name, err, ids, learned, v.IDs, want)
		}
	}
}

// TestEncodeForTrainingSaysWhatItCannotTell: a template that leaves out what was thought before the last
// answer, one whose mark is within a token, and no messages.
func TestEncodeForTrainingSaysWhatItCannotTell(t *testing.T) {
	coder := labelled(t)
	chat := []Message{{Role: "user", Content: "hi"}, {Role: assistant, Content: "word"}, {Role: "user", Content: "and"}, {Role: assistant, Content: "word"}}
	for name, test := range map[string]struct {
		template string
		messages []Message
	}{
		"thoughts": {"{% for m in messages %}<|im_start|>{{ m.content }}{% if loop.last %}!{% endif %}<|im_end|>{% endfor %}", chat},
		"border":   {"{% for m in messages %}<|im_start|>th{% generation %}e{% endgeneration %}<|im_end|>{% endfor %}", chat},
		"nothing":  {"{{ messages }}", nil},
	} {
		template, err := Parse(test.template)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := template.EncodeForTraining(coder, Input{Messages: test.messages}); !errors.Is(err, ErrTurns) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
