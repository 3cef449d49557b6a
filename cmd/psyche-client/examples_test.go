package main

import (
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/psyche-go/psyche/cmd/internal/published/publishedtest"
)

// TestExamples parses every example of the help. The files and runs that the examples name need not
// exist.
func TestExamples(t *testing.T) {
	for _, example := range examples {
		parser, err := newParser(t.Context(), &commands{}, terminal{io.Discard, io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(publishedtest.Arguments(example)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("psyche-client %s: %v", example, err)
		}
	}
}
