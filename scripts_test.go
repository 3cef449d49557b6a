package psyche

import (
	"bytes"
	"errors"
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

// TestGPUCheckContinues runs parts of scripts/gpu-check.sh with fake programs. A failed part must not stop the later
// parts, and the table must contain each part with its result and its number.
func TestGPUCheckContinues(t *testing.T) {
	for _, program := range []string{"bash", "timeout", "awk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	script, err := os.ReadFile("scripts/gpu-check.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "scripts", "gpu-check.sh")
	programs := map[string]string{path: string(script)}
	for name, text := range map[string]string{
		"psyche": "", "step": "echo x: skipped, no torch", "distro": "", "cuda.test": "", "layers.test": "", "honest": "exit 1",
		"psyche-client": `if [ "$1" = doctor ]; then echo "  memory   needs at least 1.5 GiB of 8 GiB"; exit; fi
while [ $# -gt 0 ] && [ "$1" != --events-dir ]; do shift; done
if [ $# -gt 0 ]; then mkdir -p "$2"; echo '{"seconds":0.5,"memory":1073741824}' >"$2/events.jsonl"; fi`,
	} {
		programs[filepath.Join(dir, "build", "gpu", "bin", name)] = "#!/usr/bin/env bash\n" + text + "\n"
	}
	for name, text := range programs {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "proof", "bench", "honest"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "proof", "bench", "honest", "rows-gpu.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(parts ...string) (string, int) {
		command := exec.CommandContext(t.Context(), path, parts...)
		command.Env = append(os.Environ(), "DEVICE=cpu", "MODELS=m", "TOTAL=60")
		out, err := command.CombinedOutput()
		t.Logf("%v: %v\n%s", parts, err, out)
		return string(out), command.ProcessState.ExitCode()
	}
	if _, code := run("bits", "audits", "step", "memory"); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	table, err := os.ReadFile(filepath.Join(dir, "build", "gpu", "results.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	want := [][]string{{"bits", "skipped", "needs a GPU"}, {"audits", "failed", ""}, {"step", "skipped", "no torch"}, {"memory", "ok", "m: peak 1024 MiB"}}
	if len(lines) != len(want) {
		t.Fatalf("%q, want %d lines", lines, len(want))
	}
	for i, line := range lines {
		if fields := strings.Split(line, "\t"); len(fields) != 4 || fields[0] != want[i][0] || fields[2] != want[i][1] || !strings.HasPrefix(fields[3], want[i][2]) {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
	if _, code := run("bits", "memory"); code != 0 {
		t.Errorf("exit code %d without a failure", code)
	}
	if _, code := run("bits", "absent"); code != 2 {
		t.Errorf("exit code %d for an unknown part, want 2", code)
	}
}

// TestCUDABundle makes archives of small libraries. Equal files give equal archives. The script refuses a folder without
// a needed library, or with a package without a licence.
func TestCUDABundle(t *testing.T) {
	for _, program := range []string{"bash", "gcc", "readelf", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	site := t.TempDir()
	torch, nvidia := filepath.Join(site, "torch", "lib", "libtorch_cuda.so"), filepath.Join(site, "nvidia", "cu13", "lib", "libcublas.so.13")
	licence := filepath.Join(site, "torch-2.11.0.dist-info", "licenses", "LICENSE")
	for _, path := range []string{torch, nvidia, licence} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(licence, []byte("terms"), 0o644); err != nil {
		t.Fatal(err)
	}
	compile := func(args ...string) {
		command := exec.CommandContext(t.Context(), "gcc", append([]string{"-shared", "-x", "c", "/dev/null", "-x", "none"}, args...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	compile("-Wl,-soname,libcublas.so.13", "-o", nvidia)
	compile("-Wl,--no-as-needed", nvidia, "-o", torch)
	bundle := func(name string) ([]byte, string) {
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		archive, err := filepath.Rel(here, filepath.Join(t.TempDir(), name, "client.tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "packaging/cuda/bundle.sh", site, torch, torch, "LICENSE", archive).CombinedOutput()
		made, _ := os.ReadFile(archive)
		if (err == nil) != (len(made) > 0) {
			t.Errorf("%s: %v, an archive of %d bytes\n%s", name, err, len(made), out)
		}
		return made, string(out)
	}
	first, _ := bundle("first")
	if second, out := bundle("second"); len(first) == 0 || !bytes.Equal(first, second) {
		t.Errorf("archives of %d and %d bytes differ: %s", len(first), len(second), out)
	}
	if err := os.Remove(licence); err != nil {
		t.Fatal(err)
	}
	if made, out := bundle("no licence"); made != nil || !strings.Contains(out, "torch-2.11.0.dist-info contains no licence") {
		t.Errorf("without a licence: %s", out)
	}
	if err := errors.Join(os.WriteFile(licence, []byte("terms"), 0o644), os.Remove(nvidia)); err != nil {
		t.Fatal(err)
	}
	if made, out := bundle("no library"); made != nil || !strings.Contains(out, "libcublas.so.13") {
		t.Errorf("without a library: %s", out)
	}
}
