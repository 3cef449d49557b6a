package psyche

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// pages returns the given files, and the Markdown files below the given folders.
func pages(t *testing.T, roots ...string) (found []string) {
	t.Helper()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				found = append(found, filepath.ToSlash(path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	span    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// prose returns a page without its code, because brackets in code are not links.
func prose(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return span.ReplaceAllString(fence.ReplaceAllString(string(text), ""), "")
}

// anchors returns the link names of the headings of a page.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		names[anchor(linked.ReplaceAllString(found[1], "$1"))] = true
	}
	return names
}

// anchor converts a heading to its link name: letters, digits, - and _ stay, blanks become -.
func anchor(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		default:
			return -1
		}
	}, strings.TrimSpace(text))
}

// TestLinks follows every link from a page to another page, heading or picture.
func TestLinks(t *testing.T) {
	followed := 0
	for _, page := range pages(t, "docs", "proof", "README.md", "CONTRIBUTING.md") {
		for _, found := range link.FindAllStringSubmatch(prose(t, page), -1) {
			target, name, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			followed++
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
				continue
			}
			if name != "" && !anchors(t, path)[name] {
				t.Errorf("%s links to %s: %s has no such heading", page, found[1], path)
			}
		}
	}
	if followed < 100 {
		t.Errorf("followed %d links: are these all?", followed)
	}
}

// TestBookIsWhole checks that the index lists every page once.
func TestBookIsWhole(t *testing.T) {
	const index = "docs/README.md"
	text := prose(t, index)
	for _, page := range pages(t, "docs", "proof", "README.md", "CONTRIBUTING.md") {
		relative, err := filepath.Rel("docs", page)
		if err != nil {
			t.Fatal(err)
		}
		entry := regexp.MustCompile(`(?m)^- \[[^\]]+\]\(` + regexp.QuoteMeta(filepath.ToSlash(relative)) + `\)`)
		if n := len(entry.FindAllString(text, -1)); page != index && n != 1 {
			t.Errorf("%s has %d lines of the index %s, want one", page, n, index)
		}
	}
}

// TestGlossary checks that every term of the glossary, or its name in parentheses, occurs in the sources.
func TestGlossary(t *testing.T) {
	const path = "docs/glossary.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || path == "build"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || filepath.Dir(path) == ".":
			return nil
		}
		source, err := os.ReadFile(path)
		sources.WriteString(strings.ToLower(string(source)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| `).FindAllSubmatch(text, -1) {
		for word := range strings.SplitSeq(strings.ToLower(string(row[1])), ", ") {
			words++
			if _, name, found := strings.Cut(word, "(`"); found {
				word = strings.TrimSuffix(name, "`)")
			}
			pattern := regexp.MustCompile(strings.NewReplacer(" ", "[ /.-]?", "-", "[ /-]?").Replace(regexp.QuoteMeta(word)))
			if word != "term" && !pattern.MatchString(sources.String()) {
				t.Errorf("%s: the word %q does not occur in the sources", path, word)
			}
		}
	}
	if words < 50 {
		t.Fatalf("%s has %d words: are these all?", path, words)
	}
}
