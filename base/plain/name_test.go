package plain

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/fuzztest"
)

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "Ada Lovelace", "données-2", "数据", "ผู้ที่", "Việt", "e\u0301", "<b>&\"", strings.Repeat("x", 32), "🙂 node"} {
		if err := CheckName(good, 32); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for name, bad := range map[string]string{
		"empty":              "",
		"long":               strings.Repeat("x", 33),
		"long of wide":       strings.Repeat("数", 11),
		"no UTF-8":           "a\xff",
		"cut":                "数"[:2],
		"blank before":       " a",
		"blank after":        "a ",
		"escape":             "\x1b[2J",
		"line":               "a\nb",
		"tab":                "a\tb",
		"delete":             "a\x7f",
		"C1":                 "a\u0085b",
		"right to left":      "a\u202eb",
		"isolate":            "a\u2066b",
		"mark of a script":   "a\u200fb",
		"zero width":         "a\u200bb",
		"joiner":             "a\u200db",
		"wide blank":         "a\u3000b",
		"no-break blank":     "\u00a0a",
		"filler":             "\u3164",
		"half-width filler":  "a\uffa0",
		"blank of Braille":   "\u2800",
		"variation":          "a\ufe0f",
		"grapheme joiner":    "a\u034f",
		"tag":                "a\U000e0041",
		"private":            "\ue000",
		"replaced":           "\ufeffa",
		"mark without one":   "\u0301a",
		"pile":               "a" + strings.Repeat("\u0301", 4),
		"pile after a blank": "a b" + strings.Repeat("\u0338", 14),
	} {
		if CheckName(bad, 32) == nil {
			t.Errorf("%s: %q is accepted", name, bad)
		}
	}
}

// FuzzCheckName checks that an accepted name needs no escapes for a terminal.
func FuzzCheckName(f *testing.F) {
	f.Add("Ada")
	f.Add("\x1b[31m\u202e")
	f.Add("a\u0301\u0302\u0303")
	fuzztest.Run(f, func(t *testing.T, text string) {
		if CheckName(text, 32) != nil {
			return
		}
		if Text(text) != text || strings.TrimSpace(text) != text || !utf8.ValidString(text) || len(text) > 32 || text == "" || strings.ContainsAny(text, "\n\t") {
			t.Errorf("%q", text)
		}
	})
}
