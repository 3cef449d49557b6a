// Package publishedtest reads the command lines that docs/command-lines.md promises, for the tests
// of both programs, checks the items of docs/published.md, and splits the examples of manuals.
package publishedtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Line is a command line: the name of a program, and its arguments.
type Line struct {
	Program string
	Args    []string
}

// String returns the line as typed by a user.
func (l Line) String() string { return strings.Join(append([]string{l.Program}, l.Args...), " ") }

var (
	code = regexp.MustCompile("`([^`]+)`")
	base = regexp.MustCompile("(?m)^Flags after `([^`]+)`")
	test = regexp.MustCompile(`^func (Test\w+)\(`)
)

// Lines returns every command line of the page at root/docs/command-lines.md: the complete command
// lines, and one command line for each flag. It fails the test if a row names no test, or a test that
// does not exist.
func Lines(t *testing.T, root string) []Line {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "command-lines.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := allTests(t, root)
	var lines []Line
	sections := strings.Split(string(page), "\n## ")
	for _, section := range sections[1:] {
		prefix := ""
		if found := base.FindStringSubmatch(section); found != nil {
			prefix = found[1] + " "
		}
		for row := range strings.SplitSeq(section, "\n") {
			cells := strings.Split(row, " | ")
			if !strings.HasPrefix(row, "| `") {
				continue
			}
			shown := strings.TrimSuffix(strings.TrimSpace(cells[len(cells)-1]), " |")
			if !tests[shown] {
				t.Errorf("no package has the test %q of the row\n%s", shown, row)
			}
			for _, span := range code.FindAllStringSubmatch(cells[0], -1) {
				words := strings.Fields(prefix + span[1])
				lines = append(lines, Line{Program: words[0], Args: words[1:]})
			}
		}
	}
	const least = 80 // lines of the page
	if len(lines) < least {
		t.Fatalf("%d command lines found, want %d at least", len(lines), least)
	}
	return lines
}

// named matches the test at the end of a table row.
var named = regexp.MustCompile(`\| (Test\w+) \|$`)

// Items fails the test if a row of root/docs/published.md names a test that does not exist. It
// returns the number of rows with a test.
func Items(t *testing.T, root string) (shown int) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "published.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := allTests(t, root)
	for row := range strings.SplitSeq(string(page), "\n") {
		found := named.FindStringSubmatch(row)
		if found == nil {
			continue
		}
		if shown++; !tests[found[1]] {
			t.Errorf("no package has the test of the row\n%s", row)
		}
	}
	return shown
}

// allTests returns the names of all tests in a folder.
func allTests(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "build" || strings.HasPrefix(entry.Name(), ".") && path != root):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.SplitSeq(string(text), "\n") {
			if found := test.FindStringSubmatch(line); found != nil {
				names[found[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
