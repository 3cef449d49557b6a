package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const pageTimeout = 5 * time.Minute // of all blocks of a page

// TestPagesRun executes the commands on pages of the documentation, block by block, in one shell,
// with the test's ports and folders.
func TestPagesRun(t *testing.T) {
	for page, want := range map[string][]string{
		"first-steps.md": {"psyche://", "the run is finished", "records verified", "all 40 steps"},
		"server.md":      {"WaitingForMembers", "pauses as soon", "resumes", "records verified", "needs no repair"},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if page == "first-steps.md" {
				needClient(t)
			}
			out := typed(t, filepath.Join("..", "..", "docs", page))
			for _, text := range want {
				if !strings.Contains(out, text) {
					t.Errorf("docs/%s: no output contains %q:\n%s", page, text, out)
				}
			}
		})
	}
}

// typed runs the shell blocks of a page and returns their output.
func typed(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// -m: jobs have numbers, as in an interactive shell.
	lines := []string{"set -exm", "trap 'kill -KILL $(jobs -p) 2>/dev/null || :' EXIT"}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		lines = append(lines, block[1])
	}
	substitutes := []string{"$PWD/build/bin", filepath.Dir(serverBinary), "build/first", dir, "/tmp/psyche-docs", dir}
	for _, port := range []string{"39405", "39406", "39407"} {
		substitutes = append(substitutes, port, freePort(t))
	}
	own := strings.NewReplacer(substitutes...)
	configs := filepath.Join(dir, "configs")
	if err := os.CopyFS(configs, os.DirFS(filepath.Join(top, "configs"))); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(configs, "friends", "state.toml")
	config, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, state, []byte(own.Replace(string(config))))
	// A busy machine needs longer for the first line of a log than the time in the documentation.
	wait := regexp.MustCompile(`sleep \d+; ((?:cat|tail -n \d+) (\S+))`)
	script := strings.ReplaceAll(own.Replace(strings.Join(lines, "\n")), " configs/", " "+configs+"/")
	listens := regexp.MustCompile(`sleep \d+; (cat server\.log)`) // the server logs other lines before it has a key
	script = listens.ReplaceAllString(script, "until grep -qs 'others join with' server.log; do sleep 0.1; done; $1")
	script = wait.ReplaceAllString(script, "until [ -s $2 ]; do sleep 0.1; done; $1")

	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir, command.Env = top, clientEnv()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = exitTimeout
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", page, err, out)
	}
	return string(out)
}

// freePort returns a free port.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}
