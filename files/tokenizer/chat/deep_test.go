package chat

import (
	"errors"
	"strings"
	"testing"
)

// TestDeepNesting renders templates that are nested nearly up to the limits, also within macros
// that call each other.
func TestDeepNesting(t *testing.T) {
	const n = 190
	for source, want := range map[string]string{
		"{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}":                                                               "1",
		"{{ " + strings.Repeat("[", n) + "1" + strings.Repeat("][0]", n) + " }}":                                                            "1",
		strings.Repeat("{% if 1 %}", n) + "x" + strings.Repeat("{% endif %}", n):                                                            "x",
		"{{ " + strings.Repeat("not ", n) + "1 }}":                                                                                          "True",
		"{{ 1" + strings.Repeat(" + 1", n) + " }}":                                                                                          "191",
		"{% if 0 %}" + strings.Repeat("{% elif 0 %}", n) + "{% else %}x{% endif %}":                                                         "x",
		"{{ " + strings.Repeat("'a' if 0 else ", n) + "1 }}":                                                                                "1",
		"{{ 'a'" + strings.Repeat(" | upper", n) + " }}":                                                                                    "A",
		"{% macro m(i) %}{{ " + strings.Repeat("(", n) + "m(i - 1) if i else 'x'" + strings.Repeat(")", n) + " }}{% endmacro %}{{ m(90) }}": "x",
	} {
		if text, err := render(source, Input{}); err != nil || text != want {
			t.Errorf("%.60s: %q, %v; want %q", source, text, err, want)
		}
	}
}

// TestDeepStacks renders macros that call each other from deep within an expression. The renderer must
// refuse them before the stack exceeds its limit, which ends the program.
func TestDeepStacks(t *testing.T) {
	deep := "m()"
	for range 150 {
		deep = "(" + deep + strings.Repeat("+1", 390) + ")"
	}
	for name, expression := range map[string]string{
		"conditions": "m()" + strings.Repeat(" if 1", 40_000),
		"sums":       deep,
	} {
		source := "{% macro m() %}{{ " + expression + " }}{% endmacro %}{{ m() }}"
		if _, err := render(source, Input{}); !errors.Is(err, errTooMuch) {
			t.Errorf("%s: error %v, want %v", name, err, errTooMuch)
		}
	}
}
