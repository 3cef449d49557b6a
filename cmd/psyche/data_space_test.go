package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
)

// TestIgnoreSpace checks that data tokenize refuses tokens that do not fit on the disk, and that
// --ignore-space starts it anyway. The disk is then full at the end.
func TestIgnoreSpace(t *testing.T) {
	text := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("some text\n", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(diskspacetest.Mount(t, 256<<10), "out")
	for want, args := range map[string][]string{
		"the token files take 1.9 MiB, but ":                nil,
		"if this estimate is wrong, add --ignore-space":     nil,
		"no space left on device; nothing was kept; remove": {"--ignore-space"},
	} {
		var errs bytes.Buffer
		code := run(t.Context(), append([]string{"data", "tokenize", "--output", output, text}, args...), console{io.Discard, &errs})
		if code == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit %d, %s, want %s", args, code, errs.String(), want)
		}
	}
}
