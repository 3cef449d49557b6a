package chat

import (
	"errors"
	"testing"
)

// TestHostileTemplates renders templates that read large texts again and again, or whose work grows
// with the square of a text. Each would take minutes, or more memory than most machines have, if the
// renderer counted only the texts that it creates.
func TestHostileTemplates(t *testing.T) {
	const text, spaces = "{% set t = 'a' * 20000000 %}", "{% set t = ' ' * 20000000 %}"
	const dict = text + "{% set d = {t: 1} %}"
	again := func(expression string) string {
		return "{% for i in range(90000) %}{% set x = " + expression + " %}{% endfor %}"
	}
	for name, source := range map[string]string{
		"length":         text + again("t|length"),
		"center":         text + again("t|center(1)"),
		"truncate":       text + again("t|truncate(20000000)"),
		"trim":           spaces + again("t|trim"),
		"lower":          text + again("t is lower"),
		"key":            dict + again("d[t]"),
		"get":            dict + again("d.get(t)"),
		"in":             dict + again("t in d"),
		"format":         dict + "{% set f = '%(' ~ t ~ ')s' %}" + again("f % d"),
		"precision":      text + again("'%.1s' % t"),
		"path":           "{% set t = '.' * 60000000 %}{{ [1]|map(attribute=t)|list }}",
		"paths":          "{% set t = ',' * 30000000 %}{{ [1]|sort(attribute=t) }}",
		"safe sum":       "{% set ns = namespace(x='a'|safe) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"quotient":       "{% set a = 3 ** 8000 %}{% set b = 7 ** 4900 + 1 %}" + again("a / b"),
		"integer as key": "{% set a = 3 ** 8000 %}{% set d = {a: 1} %}" + again("d[a]"),
	} {
		if _, err := render(source, Input{}); !errors.Is(err, errTooMuch) {
			t.Errorf("%s: error %v, want %v", name, err, errTooMuch)
		}
	}
	for source, want := range map[string]string{
		"{{ ('é' * 900000).strip('b' * 900000 ~ 'é')|length }}":             "0",
		"{{ ('a' * 600000)|wordwrap(2)|length }}":                           "899999",
		"{{ (' ' * 600000)|wordwrap(2)|length }}":                           "0",
		"{{ ('a' ~ '(' * 500000 ~ ')' * 500000)|urlize|length }}":           "1000001",
		"{{ ('&#' ~ '9' * 10000000 ~ ';&#x' ~ '0' * 9 ~ '41')|striptags }}": "\ufffdA",
	} {
		if text, err := render(source, Input{}); err != nil || text != want {
			t.Errorf("%s: %q, %v; want %q", source, text, err, want)
		}
	}
}
