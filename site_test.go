package psyche

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSite builds the site if Hugo is built already, and follows every reference in it.
func TestSite(t *testing.T) {
	hugo, err := filepath.Abs("build/tools/hugo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(hugo); err != nil {
		t.Skip("make site has not built Hugo here: ", err)
	}
	site := t.TempDir()
	command := exec.CommandContext(t.Context(), hugo, "--source", "docs/site", "--destination", site, "--noBuildLock", "--panicOnWarning")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, followed := 0, 0
	reference := regexp.MustCompile(`(?:href|src)="([^"#]*)(?:#([^"]*))?"`)
	for _, pattern := range []string{"*.html", "*/*.html", "*/*/*.html"} {
		files, err := filepath.Glob(filepath.Join(site, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			made++
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range reference.FindAllStringSubmatch(string(text), -1) {
				if strings.HasPrefix(found[1], "data:") || strings.Contains(found[1], "://") {
					continue
				}
				followed++
				target := file
				if found[1] != "" {
					target = filepath.Join(filepath.Dir(file), found[1])
				}
				if content, err := os.ReadFile(target); err != nil {
					t.Errorf("%s refers to %s: %v", filepath.Base(file), found[1], err)
				} else if found[2] != "" && !strings.Contains(string(content), ` id="`+found[2]+`"`) {
					t.Errorf("%s refers to %s#%s, which does not exist", filepath.Base(file), found[1], found[2])
				}
			}
		}
	}
	if pages := len(pages(t, "docs", "proof", "README.md", "CONTRIBUTING.md")); made != pages {
		t.Errorf("the site has %d pages of %d", made, pages)
	}
	if followed < 1000 {
		t.Errorf("followed %d references: are these all?", followed)
	}
	checkSearchIndex(t, site)
}

// checkSearchIndex checks that every section of the search index exists in the site, and that words of
// two pages find these pages.
func checkSearchIndex(t *testing.T, site string) {
	t.Helper()
	path := filepath.Join(site, "search-index.js")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var sections []struct{ Page, Href, ID, Heading, Text string }
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(string(text), "window.bookSections = "), ";\n")), &sections); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(sections) < 300 {
		t.Errorf("the search index has %d sections: are these all?", len(sections))
	}
	for _, section := range sections {
		content, err := os.ReadFile(filepath.Join(site, section.Href))
		if err != nil || section.ID != "" && !strings.Contains(string(content), ` id="`+section.ID+`"`) || section.Heading == "" {
			t.Errorf("the search index has %s#%s (%q): %v", section.Href, section.ID, section.Heading, err)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("node is missing: the search was not run")
		return
	}
	program := `global.window = {}; require(process.argv[1]); const { search } = require(process.argv[2]);
for (const query of process.argv.slice(3)) console.log(query + ": " + (search(window.bookSections, query)[0] || {}).href);`
	out, err := exec.CommandContext(t.Context(), node, "-e", program, path, filepath.Join(site, "search.js"),
		"invite link", "equivocation", "zzzz").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if lines := strings.Split(string(out), "\n"); len(lines) < 3 || !strings.HasSuffix(lines[0], ".html") || !strings.HasSuffix(lines[1], ".html") || lines[2] != "zzzz: undefined" {
		t.Errorf("the search finds\n%s", out)
	}
}
