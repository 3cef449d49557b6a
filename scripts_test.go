package psyche

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupFindsHeaders sets libtorch's headers in each way that scripts/setup.sh accepts.
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
		if (err == nil) != c.fine || !c.fine && !strings.Contains(string(out), "set by LIBTORCH or LIBTORCH_INCLUDE") {
			t.Errorf("%s: %v\n%s", c.include, err, out)
		}
	}
}

// TestVulnSkipsWithoutItsDatabase runs scripts/vuln.sh with a fake tool that answers like
// govulncheck.
func TestVulnSkipsWithoutItsDatabase(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	for name, c := range map[string]struct {
		tool string
		code int
		says string
	}{
		"clean":       {"echo No vulnerabilities found.", 0, "No vulnerabilities"},
		"found":       {"echo Vulnerability 1; exit 3", 3, "Vulnerability 1"},
		"no database": {"echo 'govulncheck: fetching vulnerabilities: Get: no such host' >&2; exit 1", 0, "skipped: cannot read the database of vulnerabilities"},
		"no build":    {"echo 'govulncheck: loading packages: broken' >&2; exit 1", 1, "loading packages"},
	} {
		tool := filepath.Join(t.TempDir(), "govulncheck")
		if err := os.WriteFile(tool, []byte("#!/usr/bin/env bash\n"+c.tool+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "scripts/vuln.sh", tool)
		out, err := command.CombinedOutput()
		if code := command.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, err, out)
		}
	}
}

// TestVerifierDependsOnSourcesOnly checks that make verifier puts neither the state of the repository nor the caller's
// build flags into the program, because users compare its hash.
func TestVerifierDependsOnSourcesOnly(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "make", "--dry-run", "verifier").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"GOFLAGS= ", "CGO_ENABLED=0 ", "-trimpath ", "-buildvcs=false "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
