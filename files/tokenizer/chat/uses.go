package chat

import "strings"

// Reads reports whether a template names word: as a variable, as a field, or as a complete string
// that it compares or looks up. A template that does not name a field or a variable never sees its
// value.
func (t *Template) Reads(word string) bool {
	for _, token := range t.tokens {
		if (token.kind == nameToken || token.kind == stringToken) && token.text == word {
			return true
		}
	}
	return false
}

// Contains reports whether a template can write text by itself: as a part of the text between its
// tags, or of a string.
func (t *Template) Contains(text string) bool {
	for _, token := range t.tokens {
		if (token.kind == textToken || token.kind == stringToken) && strings.Contains(token.text, text) {
			return true
		}
	}
	return false
}
