package publishedtest

import "strings"

// Arguments splits an example of a manual as a shell does. It supports only single quotes.
func Arguments(example string) []string {
	quoted := false
	words := strings.FieldsFunc(example, func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "'", "")
	}
	return words
}
