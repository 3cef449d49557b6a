package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
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
		Chats     []json.RawMessage
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
	for i, v := range made.Vectors {
		in := Input{Messages: readMessages(t, made.Chats[v.Chat]), AddGenerationPrompt: v.Prompt, Tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
		if v.Tools {
			in.Tools = made.Tools
		}
		text, err := render(made.Templates[v.Template], in)
		if (err != nil) != (v.Error != "") || text != v.Text {
			t.Errorf("vector %d, %s: %q, %v; the reference: %q, %s", i, v.Template, text, err, v.Text, v.Error)
		}
	}
}

// readMessages decodes messages with the kinds of their contents.
func readMessages(t testing.TB, raw json.RawMessage) (messages []Message) {
	t.Helper()
	var fields []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &messages); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for i, message := range fields {
		if content, found := message["content"]; !found {
			messages[i].Kind = NoContent
		} else if string(content) == "null" {
			messages[i].Kind = NullContent
		}
	}
	return messages
}

// TestEmptyNullAndAbsent checks that empty, null and absent fields are rendered as in jinja2.
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

// TestToolsThatAreNoJSON checks that invalid tools give errors of this package.
func TestToolsThatAreNoJSON(t *testing.T) {
	for _, raw := range []string{"{}", "1", "[", "[1] 2", `[{"a": }]`, "[1" + strings.Repeat("0", 5000) + "]", "[1e999]", "[\"\xff\"]", strings.Repeat("[", 1000)} {
		for _, in := range []Input{{Tools: json.RawMessage(raw)}, {Messages: []Message{{Role: "assistant", Calls: json.RawMessage(raw)}}}} {
			if text, err := render("{{ tools }}{{ messages }}", in); raw != "[\"\xff\"]" && !errors.Is(err, ErrTemplate) && !errors.Is(err, errTooMuch) {
				t.Errorf("%.40q: %q, %v", raw, text, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for source, want := range map[string]error{
		"{% include 'x' %}": errUnsupported, "{{ 1 | nosuch }}": errSyntax, "{{ 1 is nosuch }}": errSyntax,
		"{% if 1 %}{{ 1 | nosuch }}{% endif %}": ErrTemplate, "{% if 1 %}{% set x %}{{ 1 | nosuch }}{% endset %}{% endif %}": errSyntax,
		"{{ 1 | nosuch if 1 }}": ErrTemplate, "{{ [1] | random }}": errUnsupported, "{{ 'a'.encode() }}": errUnsupported, "{{ lipsum() }}": errUnsupported,
		"{{ ''.__class__.x }}": ErrTemplate, "{{ [1].append(2) }}": ErrTemplate, "{{ 1e308 * 10 }}": errUnsupported, "{{ 1.5 // 0 }}": ErrTemplate,
		"{{ [1][0.0] + 1 }}": ErrTemplate, "{{ 1.5x }}": errSyntax, "{{ strftime_now('%d') }}": errUnsupported, "{{ a.b.c }}": ErrTemplate,
		"{{ raise_exception('no') }}": ErrTemplate, "{{ 1": errSyntax, "{% if 1 %}": errSyntax, "{{ ]": errSyntax, "{% raw %}x": errSyntax,
		"{% macro m(caller) %}{% endmacro %}": errUnsupported, "{% call 1 %}{% endcall %}": errSyntax, "{{ {[]: 1} }}": ErrTemplate,
		"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}": ErrTemplate, "{{ f(**1) }}": ErrTemplate, "{{ dict([1]) }}": ErrTemplate,
	} {
		if text, err := render(source, Input{}); !errors.Is(err, want) {
			t.Errorf("%.60s: %.60q, error %v, want %v", source, text, err, want)
		}
	}
}

// TestBounded checks that templates that need too much time or memory give an error.
func TestBounded(t *testing.T) {
	for _, source := range []string{
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
		"{{ 'x' * 999999999 }}", "{{ [1] * 999999999 }}", "{{ 999999999 * 'x' }}", "{{ ['x' * 99999] * 99999 }}", "{{ 'x' * 9**99 ~ 1 }}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}",
		"{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(9999) %}{% set n.x = n.x | map('string') %}{% endfor %}{{ n.x | list }}",
		"{% set n = namespace(x=[1]) %}{% for i in range(9999) %}{% set n.x = [n.x] | map('list') %}{% endfor %}{{ n.x | list }}",
		"{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x, range(99999) | list] %}{% endfor %}",
		"{{ 9 ** (9 ** 9) }}", "{{ 2 ** 99999999 }}", "{{ (2 ** 9999) ** 9999 }}", "{% set n = namespace(x=2) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
		"{{ 'x' | center(999999999) }}", "{{ 'x' | indent(999999999, true) }}", "{{ [1] | tojson(indent=999999999) }}", "{{ '%999999999d' % 1 }}", "{{ 'x'.zfill(999999999) }}",
		"{{ [1] | batch(999999999, 0) | list }}", "{{ [1] | slice(999999999) | list }}", "{{ ('x' * 9999).replace('', 'y' * 99999) }}",
		"{% set n = namespace(d={}) %}{% for i in range(9999) %}{% set n.d = dict(n.d, **{'k' ~ i: i}) %}{% endfor %}",
		"{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = n.l + [n.l] %}{% endfor %}{{ n.l }}",
		"{% set n = namespace(l=[1]) %}{% for i in range(40) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}",
		"{% set n = namespace(l=(1,)) %}{% for i in range(40) %}{% set n.l = (n.l, n.l) %}{% endfor %}{{ {n.l: 1} }}",
		"{{ range(99999) | map('string') | join(' ') | wordcount }}{% for i in range(99) %}{{ range(99999) | sort(reverse=true) | length }}{% endfor %}",
		"{% for c in ('\u03a3' ~ '.' * 9999) * 999 %}{% endfor %}{{ (('\u03a3' ~ '.' * 9999) * 999) | lower | length }}",
		"{% for i in range(99) %}{{ dict(*range(99999)) if 0 else cycler(*range(99999)).next() }}{% endfor %}", "{{ range(999999999) }}",
		"{{ '" + strings.Repeat("%s", 9999) + "' % (('x' * 99999,) * 9999) }}",
		"{{ '{:>999999999}'.format(1) }}", "{{ '{:{}}'.format(1, 999999999) }}", "{{ '%*d' % (999999999, 1) }}", "{{ strftime_now('%999999999d') }}", "{{ 'a\tb'.expandtabs(999999999) }}",
		"{% for i in range(9999) %}{{ '{:09999,}'.format(i) | length }}{{ '%.9999f' % i }}{% endfor %}", "{% for i in range(99999) %}{{ ('x ' * 999) | wordwrap(2) | length }}{% endfor %}",
		"{% for i in range(99999) %}{{ ('a@b.c ' * 999) | urlize | length }}{% endfor %}", "{% for i in range(99999) %}{{ [('x ' * 99,) * 99] | pprint | length }}{% endfor %}",
		"{% for i in range(99999) %}{{ range(999) | groupby('real') | length }}{{ ('x' * 999) | striptags }}{% endfor %}", "{% set x = dict.fromkeys(range(2000)) %}{% for i in range(99) %}{{ x.items() == dict(x).items() }}{% endfor %}",
		"{% for i in range(99999) %}{{ ('x' * 999).translate({120: 'y' * 999}) | length }}{% endfor %}",
		strings.Repeat("{% if 1 %}", 1000), "{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}", strings.Repeat("x", maxSource+1),
		"{% set " + strings.Repeat("(", 1000) + "a" + strings.Repeat(")", 1000) + " = 1 %}",
	} {
		template, err := Parse(source)
		var text string
		if err == nil {
			text, _, err = template.renderWithin(Input{Now: time.Unix(0, 0)}, maxSteps/16, maxWork/16)
		}
		if !errors.Is(err, errTooMuch) {
			t.Errorf("%.80s: %.60q, error %v", source, text, err)
		}
	}
}

// FuzzTemplate checks that any template ends with a text or an error of this package.
func FuzzTemplate(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Template)
	}
	for _, v := range readFeatures(f).Vectors {
		f.Add(v.Template)
	}
	for _, v := range readRandom(f, "testdata/random.jsonl").vectors {
		f.Add(v.Template)
	}
	fuzztest.Run(f, func(t *testing.T, source string) {
		_, err := render(source, Input{Messages: []Message{{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "é", Calls: json.RawMessage(`[{"id": "a", "n": 1.5e3}]`), Name: json.RawMessage(`"Ann"`), CallID: json.RawMessage("null")}}, Now: time.Unix(1e9, 0), Tools: json.RawMessage(`[{"a": [0.1, -2, null, true]}]`)})
		known := false
		for _, one := range []error{errUnsupported, errSyntax, errTooMuch, ErrTemplate} {
			known = known || errors.Is(err, one)
		}
		if err != nil && !known {
			t.Errorf("error %v", err)
		}
	})
}

// TestLoadReadsWhatPythonWrites checks that tokenizer_config.json may contain Python's constants,
// as in transformers.
func TestLoadReadsWhatPythonWrites(t *testing.T) {
	load := func(config string) (*Template, map[string]string, error) {
		return Load(func(name string) ([]byte, bool) { return []byte(config), name == "tokenizer_config.json" })
	}
	for _, config := range []string{
		"\ufeff{}", "\xff\xfe{\x00}\x00", "version https://git-lfs.a/b\n", `{"chat_template":"a","b":nan}`, `{"chat_template":"NaN","b":}`, `{"chat_template":Infinity,"a":`,
	} {
		_, _, err := load(config)
		golden.Message(t, config, err)
	}
	for _, config := range []string{
		`{"chat_template":"NaN","bos_token":"<s>","model_max_length":Infinity}`,
		`{"a":NaN,"chat_template":"NaN","bos_token":{"content":"<s>","x":-Infinity}}`,
		`{"chat_template":[{"name":"default","template":"NaN"}],"bos_token":"<s>","a":NaN}`,
	} {
		template, tokens, err := load(config)
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		if text, err := template.Render(Input{}); err != nil || text != "NaN" || tokens["bos_token"] != "<s>" {
			t.Errorf("%s: got %q, %v, %v; want nil error and \"NaN\" and tokens[\"bos_token\"] == \"<s>\"", config, text, tokens, err)
		}
	}
}

// TestErrorsOfTheInput checks that an error about the input names no line of the template, and that
// an error of the template names its line.
func TestErrorsOfTheInput(t *testing.T) {
	user := Message{Role: "user", Content: "q"}
	for name, in := range map[string]Input{
		"number as tools":        {Messages: []Message{user}, Tools: json.RawMessage(`5`)},
		"object as tools":        {Messages: []Message{user}, Tools: json.RawMessage(`{}`)},
		"text as tools":          {Messages: []Message{user}, Tools: json.RawMessage(`"a text"`)},
		"damaged tools":          {Messages: []Message{user}, Tools: json.RawMessage(`[{]`)},
		"object as tool_calls":   {Messages: []Message{{Role: "assistant", Calls: json.RawMessage(`{}`)}}},
		"number as tool_call_id": {Messages: []Message{{Role: "tool", CallID: json.RawMessage(`5`)}}},
		"Latin-1":                {Messages: []Message{{Role: "user", Content: "\xff"}}},
		"10,000 lists in a list": {Messages: []Message{user}, Tools: json.RawMessage(strings.Repeat("[", 10000))},
		"no messages":            {Tools: json.RawMessage(`[{"a":1}]`)},
	} {
		_, err := render("{% if tools %}\n{% endif %}\n{{ raise_exception('no messages') if not messages }}", in)
		golden.Message(t, name, err)
	}
}
