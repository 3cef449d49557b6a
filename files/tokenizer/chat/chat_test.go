package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
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

func TestRefused(t *testing.T) {
	for source, want := range map[string]error{
		"{% include 'x' %}": ErrUnsupported, "{{ 1 | nosuch }}": ErrUnsupported, "{{ 1 is nosuch }}": ErrUnsupported, "{{ ''.format(1) }}": ErrUnsupported,
		"{{ ''.__class__ }}": ErrUnsupported, "{{ 1.5 }}": ErrUnsupported, "{{ strftime_now('%d') }}": ErrUnsupported, "{{ a.b.c }}": ErrTemplate,
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
	f.Fuzz(func(t *testing.T, source string) {
		_, err := render(source, Input{Messages: []Message{{"user", "Hi"}, {"assistant", "é"}}})
		known := false
		for _, one := range []error{ErrUnsupported, ErrSyntax, ErrTooMuch, ErrTemplate} {
			known = known || errors.Is(err, one)
		}
		if err != nil && !known {
			t.Errorf("error %v", err)
		}
	})
}
