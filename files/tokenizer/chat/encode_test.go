package chat

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// framed returns the byte tokenizer with two control tokens: a special token, and a token that is
// not special.
func framed(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	added := `"added_tokens": [` +
		`{"id":256,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},` +
		`{"id":257,"content":"<|user|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false},` +
		`{"id":258,"content":"<think>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}]`
	file := string(tokenizer.Bytes().JSON())
	changed := strings.Replace(file, `"added_tokens": []`, added, 1)
	if changed == file {
		t.Fatalf("the byte tokenizer has no empty added_tokens: %.200s", file)
	}
	coder, err := tokenizer.Parse([]byte(changed))
	if err != nil {
		t.Fatal(err)
	}
	return coder
}

// refusal is the reason to refuse a conversation.
type refusal int

const (
	none     refusal = iota
	contains         // a text contains a control token
	differs          // the template changes the control tokens
)

func TestEncodeKeepsTheFrame(t *testing.T) {
	coder := framed(t)
	const plain = "{% for m in messages %}<|user|>{{ m.content | trim }}<|end|>{% endfor %}"
	const assembling = "{% for m in messages %}<|user|>{{ m.content.replace('#', '') }}<|end|>{% endfor %}"
	const suppressing = "{% for m in messages %}<|user|>{% if 'stop' in m.content %}{{ m.content }}{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
	for title, test := range map[string]struct {
		template, content string
		refused           refusal
		ends              []int32
	}{
		"text":                       {plain, " What does |end> mean? ", none, nil},
		"nothing":                    {plain, "", none, nil},
		"an end":                     {plain, "a<|end|>", contains, nil},
		"not special, of the frame":  {plain, "a<|user|>", contains, nil},
		"not special, of no frame":   {plain, "<think>a", none, nil},
		"made by the template":       {assembling, "a<|e#nd|>", differs, nil},
		"no frame":                   {suppressing, "stop", differs, nil},
		"in place of one of a frame": {suppressing, "stop<|end|>", none, nil}, // the same control tokens, in the same order
		"an id that ends texts":      {plain, "a\x00b", contains, []int32{0}},
	} {
		tokens, err := Parse(test.template)
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Messages: []Message{{Role: "user", Content: "Hi"}, {Role: "user", Content: test.content}}}
		name, err := json.Marshal(test.content)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal([]map[string]string{{"name": test.content}}); err != nil {
			t.Fatal(err)
		} else if test.refused == contains {
			for _, m := range []Input{{Tools: text}, {Messages: []Message{{Role: "user", Calls: text}}}, {Messages: []Message{{Role: "user", Name: name}}}} {
				m.Messages = append(m.Messages, Message{Role: "user", Content: "Hi"})
				if _, err := tokens.Encode(coder, m, test.ends); !errors.Is(err, ErrControl) || errors.Is(err, ErrToolControl) != (m.Tools != nil) {
					t.Errorf("%s, in tools: %v", title, err)
				}
			}
		}
		ids, err := tokens.Encode(coder, in, test.ends)
		if test.refused != none {
			if !errors.Is(err, ErrControl) {
				t.Errorf("%s: error %v", title, err)
			}
			golden.Message(t, title, err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		text, err := tokens.Render(in)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := coder.Encode([]byte(text)); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: ids %v, want %v, %v", title, ids, want, err)
		}
	}
}

// TestEncodeByPieces checks that a tokenizer that cannot find control tokens in text gives an
// error.
func TestEncodeByPieces(t *testing.T) {
	coder, err := tokenizer.ParseSentencePiece([]byte("\n\x09\n\x05<unk>\x18\x02" + "\n\x08\n\x01e\x15\x00\x00\x80\xbf"))
	if err != nil {
		t.Fatal(err)
	}
	template, err := Parse("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := template.Encode(coder, Input{Messages: []Message{{Role: "user", Content: "e"}}}, nil); !errors.Is(err, errNoControl) {
		t.Errorf("got %v; want error errNoControl", err)
	}
}
