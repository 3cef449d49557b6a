package talk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// isControl reports whether a character controls a terminal, or overrides the direction of the characters after it. Ends
// of lines and tabs do not count.
func isControl(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// Plain returns a text that is safe to show: valid UTF-8 of at most n bytes, with U+FFFD instead of each control character.
// Lines end with "\n": models that learned from texts of Windows write "\r\n".
func Plain(text string, n int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\r\n", "\n")
	text = strings.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r
	}, text)
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
