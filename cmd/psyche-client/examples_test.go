package main

import (
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/psyche-go/psyche/cmd/internal/manual/manualtest"
)

// TestExamples parses every example of the help; what they name need not exist.
func TestExamples(t *testing.T) {
	for _, example := range examples {
		parser, err := newParser(t.Context(), &commands{}, terminal{io.Discard, io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(manualtest.Arguments(example)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("psyche-client %s: %v", example, err)
		}
	}
}
