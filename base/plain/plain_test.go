package plain

import "testing"

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"run \"é\" 数:\n\ta line":        "run \"é\" 数:\n\ta line",
		"\x1b]52;c;eA==\a\x1b[2Jrm -rf": `\x1b]52;c;eA==\a\x1b[2Jrm -rf`,
		"hidden\rshown\b\x7f":           `hidden\rshown\b\x7f`,
		"\u202egnp.exe\u200b\u0085":     `\u202egnp.exe\u200b\u0085`,
		"no \xff text":                  `no \xff text`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
