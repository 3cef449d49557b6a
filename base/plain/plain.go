package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text with all unprintable characters except line ends and tabs escaped as in Go.
func Text(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if invalid := r == utf8.RuneError && size == 1; !invalid && (unicode.IsPrint(r) || r == '\n' || r == '\t') {
			b.WriteString(text[:size])
		} else {
			quoted := strconv.Quote(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}
