package publishedtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Page compares docs/manual/PROGRAM.md with the help of the program's commands. root is the
// repository relative to the test's folder.
func Page(t *testing.T, root, program, help string) {
	t.Helper()
	path := filepath.Join(root, "docs", "manual", program+".md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(help, string(page)); diff != "" {
		t.Errorf("%s does not match the help of %s (-help +page); regenerate it: make help-pages\n%s", path, program, diff)
	}
}
