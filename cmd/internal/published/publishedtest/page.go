package publishedtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// Page compares docs/manual/PROGRAM.md with the help of the program's commands. root is the
// repository relative to the test's folder. With -update, Page writes the page.
func Page(t *testing.T, root, program, help string) {
	t.Helper()
	path := filepath.Join(root, "docs", "manual", program+".md")
	if golden.Update() {
		if err := os.WriteFile(path, []byte(help), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(help, string(page)); diff != "" {
		t.Errorf("%s does not match the help of %s (-help +page); regenerate it: make help-pages, or run this test with -update\n%s", path, program, diff)
	}
}
