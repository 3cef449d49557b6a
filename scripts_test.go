package psyche

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupFindsHeaders names libtorch's headers in each way that scripts/setup.sh takes.
func TestSetupFindsHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the toolchain")
	}
	for _, program := range []string{"bash", "gcc", "g++"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	headers := filepath.Join(dir, "include", "ATen")
	if err := os.MkdirAll(headers, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(headers, "ATen.h"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		include string
		fine    bool
	}{{dir, true}, {filepath.Join(dir, "include"), true}, {filepath.Join(dir, "none"), false}} {
		command := exec.CommandContext(t.Context(), "scripts/setup.sh")
		command.Env = append(os.Environ(), "LIBTORCH=", "LIBTORCH_LIB="+dir, "LIBTORCH_INCLUDE="+c.include)
		out, err := command.CombinedOutput()
		if (err == nil) != c.fine || !c.fine && !strings.Contains(string(out), "LIBTORCH_INCLUDE names") {
			t.Errorf("%s: %v\n%s", c.include, err, out)
		}
	}
}
