package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
)

type vector struct {
	Name, Template, Text, Error string
	Messages                    []Message
	Prompt                      bool
}

// vectors were made by scripts/reference/chat_vectors.py.
func vectors(t testing.TB) (all []vector) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func render(source string, in Input) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(in)
}

func TestVectors(t *testing.T) {
	for i, v := range vectors(t) {
		in := Input{Messages: v.Messages, AddGenerationPrompt: v.Prompt, Tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
		text, err := render(v.Template, in)
		if (err != nil) != (v.Error != "") || text != v.Text {
			t.Errorf("vector %d, %s: %q, %v; the reference: %q, %s", i, v.Name, text, err, v.Text, v.Error)
		}
	}
}

// TestToolVectors has conversations with tools, and numbers with fractions.
func TestToolVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		Templates map[string]string
		Chats     [][]Message
		Tools     json.RawMessage
		Vectors   []struct {
			Template, Text, Error string
			Chat                  int
			Tools, Prompt         bool
		}
	}
	if err := json.Unmarshal(data, &made); err != nil {
		t.Fatal(err)
	}
	setKinds(t, data, made.Chats)
	for i, v := range made.Vectors {
		in := Input{Messages: made.Chats[v.Chat], AddGenerationPrompt: v.Prompt, Tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
		if v.Tools {
			in.Tools = made.Tools
		}
		text, err := render(made.Templates[v.Template], in)
		if (err != nil) != (v.Error != "") || text != v.Text {
			t.Errorf("vector %d, %s: %q, %v; the reference: %q, %s", i, v.Template, text, err, v.Text, v.Error)
		}
	}
}

// setKinds reads from the file of tool vectors which messages have a null content, and which have none.
func setKinds(t *testing.T, data []byte, chats [][]Message) {
	t.Helper()
	var raw struct {
		Chats [][]map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	for i, messages := range raw.Chats {
		for j, message := range messages {
			if content, found := message["content"]; !found {
				chats[i][j].Kind = NoContent
			} else if string(content) == "null" {
				chats[i][j].Kind = NullContent
			}
		}
	}
}

// TestEmptyNullAndAbsent renders what jinja2 renders of empty, null and absent fields.
func TestEmptyNullAndAbsent(t *testing.T) {
	const template = `{{ message.content }}|{{ 'content' in message }}|{{ message.content is none }}|{{ message.content is defined }}|{{ message.content is string }}|{{ message.tool_calls is defined }}|{{ message.tool_calls is none }}|{{ message.tool_calls | length if message.tool_calls is sequence else '-' }}`
	calls := json.RawMessage(`[{"id":"a"}]`)
	for _, c := range []struct {
		message Message
		want    string
	}{
		{Message{Calls: calls}, "|True|False|True|True|True|False|1"},
		{Message{Kind: NullContent, Calls: calls}, "None|True|True|True|False|True|False|1"},
		{Message{Kind: NoContent, Calls: calls}, "|False|False|False|False|True|False|1"},
		{Message{Content: "a", Calls: json.RawMessage("null")}, "a|True|False|True|True|True|True|-"},
		{Message{Content: "a", Calls: json.RawMessage("[]")}, "a|True|False|True|True|True|False|0"},
		{Message{Content: "a"}, "a|True|False|True|True|False|False|0"},
	} {
		text, err := render("{% for message in messages %}"+template+"{% endfor %}", Input{Messages: []Message{c.message}})
		if err != nil || text != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.message, text, err, c.want)
		}
	}
}

// TestToolsThatAreNoJSON wants errors of this package.
func TestToolsThatAreNoJSON(t *testing.T) {
	for _, raw := range []string{"{}", "1", "[", "[1] 2", `[{"a": }]`, "[123456789012345678901]", "[1e999]", "[\"\xff\"]", strings.Repeat("[", 1000)} {
		for _, in := range []Input{{Tools: json.RawMessage(raw)}, {Messages: []Message{{Role: "assistant", Calls: json.RawMessage(raw)}}}} {
			if text, err := render("{{ tools }}{{ messages }}", in); raw != "[\"\xff\"]" && !errors.Is(err, ErrTemplate) && !errors.Is(err, ErrTooMuch) {
				t.Errorf("%.40q: %q, %v", raw, text, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for source, want := range map[string]error{
		"{% include 'x' %}": ErrUnsupported, "{{ 1 | nosuch }}": ErrUnsupported, "{{ 1 is nosuch }}": ErrUnsupported, "{{ ''.format(1) }}": ErrUnsupported,
		"{{ ''.__class__ }}": ErrUnsupported, "{{ 1.5 ** 2 }}": ErrUnsupported, "{{ 1e308 * 10 }}": ErrUnsupported, "{{ 2 ** 40 }}": ErrUnsupported, "{{ 1.5 // 0 }}": ErrTemplate, "{{ [1][0.0] + 1 }}": ErrTemplate, "{{ 1.5x }}": ErrUnsupported, "{{ strftime_now('%d') }}": ErrUnsupported, "{{ a.b.c }}": ErrTemplate,
		"{{ raise_exception('no') }}": ErrTemplate, "{{ 1": ErrSyntax, "{% if 1 %}": ErrSyntax, "{{ ]": ErrSyntax,
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}":              ErrTooMuch,
		"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}": ErrTooMuch,
		"{{ 'x' * 999999999 }}": ErrTooMuch, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": ErrTooMuch,
		strings.Repeat("{% if 1 %}", 1000):                                          ErrTooMuch,
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}": ErrTooMuch, strings.Repeat("x", maxSource+1): ErrTooMuch,
	} {
		if text, err := render(source, Input{}); !errors.Is(err, want) {
			t.Errorf("%.60s: %.60q, error %v, want %v", source, text, err, want)
		}
	}
}

// A template of anybody ends with a text or an error of this package.
func FuzzTemplate(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Template)
	}
	fuzztest.Run(f, func(t *testing.T, source string) {
		_, err := render(source, Input{Messages: []Message{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "é", Calls: json.RawMessage(`[{"id": "a", "n": 1.5e3}]`)}}, Tools: json.RawMessage(`[{"a": [0.1, -2, null, true]}]`)})
		known := false
		for _, one := range []error{ErrUnsupported, ErrSyntax, ErrTooMuch, ErrTemplate} {
			known = known || errors.Is(err, one)
		}
		if err != nil && !known {
			t.Errorf("error %v", err)
		}
	})
}

// TestLoadReadsWhatPythonWrites: tokenizer_config.json may have Python's constants, as in transformers.
func TestLoadReadsWhatPythonWrites(t *testing.T) {
	for config, want := range map[string]string{
		`{"chat_template":"NaN","bos_token":"<s>","model_max_length":Infinity}`:             "",
		`{"a":NaN,"chat_template":"NaN","bos_token":{"content":"<s>","x":-Infinity}}`:       "",
		`{"chat_template":[{"name":"default","template":"NaN"}],"bos_token":"<s>","a":NaN}`: "",
		"\ufeff{}":                       "tokenizer_config.json: it begins with a byte order mark",
		"\xff\xfe{\x00}\x00":             "tokenizer_config.json: it is UTF-16",
		"version https://git-lfs.a/b\n":  "tokenizer_config.json: it is a pointer of Git LFS",
		`{"chat_template":"a","b":nan}`:  "tokenizer_config.json: ",
		`{"chat_template":"NaN","b":}`:   "tokenizer_config.json: ",
		`{"chat_template":Infinity,"a":`: "tokenizer_config.json: ",
	} {
		template, tokens, err := Load(func(name string) ([]byte, bool) { return []byte(config), name == "tokenizer_config.json" })
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", config, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		if text, err := template.Render(Input{}); err != nil || text != "NaN" || tokens["bos_token"] != "<s>" {
			t.Errorf("%s: %q, %v, %v", config, text, tokens, err)
		}
	}
}
