// Package manualtest reads the examples of manuals, for tests that want each to be one.
package manualtest

import "strings"

// Arguments splits an example as a shell would, where the only quotes are single ones.
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
