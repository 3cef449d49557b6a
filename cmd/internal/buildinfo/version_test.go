package buildinfo

import (
	"regexp"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	for _, c := range []struct{ tag, module, want string }{
		{"", "", "0.2.0-dev"},
		{"v0.2.0", "(devel)", "0.2.0"},
		{"", "v0.2.0", "0.2.0"},
		{"v0.1.0", "(devel)", "0.2.0-dev"},
		{"v0.2.0-dirty", "v0.2.0+dirty", "0.2.0-dev"},
	} {
		if got := version("0.2.0", c.tag, c.module); got != c.want {
			t.Errorf("tag %q, module %q: %s, want %s", c.tag, c.module, got, c.want)
		}
	}
}

// TestFileOfVersion checks that VERSION contains a semantic version, and that --version prints it.
func TestFileOfVersion(t *testing.T) {
	if !regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?\n$`).MatchString(next) {
		t.Errorf("VERSION is %q, want a version such as 0.1.0", next)
	}
	if line := Line("psyche"); !strings.HasPrefix(line, "psyche "+strings.TrimSpace(next)) {
		t.Error(line)
	}
}
