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

// TestEncodeForTraining compares with the assistant tokens of transformers, and of scripts that
// prepare samples.
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

// TestEncodeForTrainingErrors checks three errors: a template that removes the
// thoughts before the last answer, a template with a mark inside of a token, and a conversation
// without messages.
func TestEncodeForTrainingErrors(t *testing.T) {
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
			t.Errorf("%s: got %v; want error ErrTurns", name, err)
		}
	}
}

// TestMaskedAnswers checks that a masked answer is not learned, whether the template marks answers
// or not, and whatever its position. The ids stay the same.
func TestMaskedAnswers(t *testing.T) {
	coder := labelled(t)
	say := func(masked bool, content string) Message {
		return Message{Role: assistant, Content: content, Masked: masked}
	}
	ask := Message{Role: "user", Content: "hi"}
	header := "{% for m in messages %}<|im_start|>{{ m.role }}\n"
	prompt := "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	for name, template := range map[string]string{
		"added":       header + "{{ m.content }}<|im_end|>{% endfor %}" + prompt,
		"marked":      header + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}" + prompt,
		"marks twice": header + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% generation %}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}" + prompt,
		"default":     "{% if messages[0].role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>{% endif %}" + header + "{{ m.content }}<|im_end|>{% endfor %}" + prompt,
	} {
		parsed, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			messages []Message
			want     string
		}{
			{[]Message{ask, say(true, "bad"), ask, say(false, "good")}, "good<|im_end|>"},
			{[]Message{ask, say(false, "good"), ask, say(true, "bad")}, "good<|im_end|>"},
			{[]Message{ask, say(true, "bad"), ask, say(true, "bad")}, ""},
			{[]Message{say(true, "bad"), ask, say(false, "good")}, "good<|im_end|>"},
			{[]Message{say(false, "one"), ask, say(false, "two")}, "one<|im_end|>two<|im_end|>"},
			{[]Message{say(false, "one")}, "one<|im_end|>"},
			{[]Message{{Role: "system", Content: "x"}, say(false, "one")}, "one<|im_end|>"},
		} {
			ids, learned, err := parsed.EncodeForTraining(coder, Input{Messages: test.messages})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var kept []int32
			for i, id := range ids {
				if learned[i] {
					kept = append(kept, id)
				}
			}
			text, err := coder.Decode(kept)
			if err != nil || string(text) != test.want {
				t.Errorf("%s, %+v: learns %q, %v; want %q", name, test.messages, text, err, test.want)
			}
		}
	}
}

// TestMasksOfOnlySomeAnswersAreRefused has templates that mark only the last answer, or that write
// the first answer without its header.
func TestMasksOfOnlySomeAnswersAreRefused(t *testing.T) {
	coder := labelled(t)
	for name, test := range map[string]struct {
		template string
		messages []Message
	}{
		"marks the last": {
			"{% for m in messages %}<|im_start|>{% if loop.last %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
			[]Message{{Role: "user", Content: "hi"}, {Role: assistant, Content: "a", Masked: true}, {Role: "user", Content: "hi"}, {Role: assistant, Content: "b"}},
		},
		"first otherwise": {
			"{% for m in messages %}{% if loop.first and m.role == 'assistant' %}!{% else %}<|im_start|>{{ m.role }}{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}",
			[]Message{{Role: assistant, Content: "a"}, {Role: "user", Content: "hi"}},
		},
		"refuses": {
			"{% for m in messages %}{% if m.content == 'word' and m.role == 'user' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}",
			[]Message{{Role: assistant, Content: "a"}},
		},
	} {
		template, err := Parse(test.template)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := template.EncodeForTraining(coder, Input{Messages: test.messages}); !errors.Is(err, ErrTurns) {
			t.Errorf("%s: got %v; want error ErrTurns", name, err)
		}
	}
}
