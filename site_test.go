package psyche

import (
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
}
