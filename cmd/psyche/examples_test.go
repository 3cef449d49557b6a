package main

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/cmd/internal/published/publishedtest"
)

// TestExamples parses every example of the help. The files and runs that the examples name need not
// exist.
func TestExamples(t *testing.T) {
	for _, example := range examples {
		parser, err := newParser(t.Context(), &commands{}, console{io.Discard, io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(publishedtest.Arguments(example)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("psyche %s: %v", example, err)
		}
	}
	var page strings.Builder
	if code := run(t.Context(), []string{"print-man"}, console{&page, io.Discard}); code != exitOK {
		t.Fatalf("print-man: exit code %d", code)
	}
	for _, section := range []string{".SH EXAMPLES\n.PP\n.RS\n.nf\npsyche host texts", ".SH ENVIRONMENT\n.TP\n.B ", ".SH FILES\n.TP\n.I "} {
		if !strings.Contains(page.String(), section) {
			t.Errorf("the man page has no %q", section)
		}
	}
}
