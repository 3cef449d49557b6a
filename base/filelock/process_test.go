package filelock

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// holderVariable names a file. The test program locks it and keeps the lock.
const holderVariable = "PSYCHE_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	path := os.Getenv(holderVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	if _, err := Open(path, 0o600); err != nil {
		_, _ = os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("locked\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
}

// holder starts a process that locks a file. It returns the process and its first line of output.
func holder(t *testing.T, path string) (process *exec.Cmd, said string) {
	t.Helper()
	process = exec.Command(os.Args[0])
	process.Env = append(os.Environ(), holderVariable+"="+path)
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close() })
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	said, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("output of the other process %q: %v", said, err)
	}
	return process, said
}

// TestProcesses checks that a lock of another process excludes this process and a third process,
// until its holder is killed.
func TestProcesses(t *testing.T) {
	if !Supported {
		t.Skip("this system has no locks")
	}
	path := filepath.Join(t.TempDir(), "locked")
	first, said := holder(t, path)
	if said != "locked\n" {
		t.Fatalf("output of the first process %q", said)
	}
	_, err := Open(path, 0o600)
	says(t, err, ErrHeld, path)
	if pid := holderOf(err); runtime.GOOS == "linux" && pid != first.Process.Pid && pid != 0 { // 0 in some containers
		t.Errorf("process %d has the lock, want %d", pid, first.Process.Pid)
	}
	if _, said := holder(t, path); said != err.Error()+"\n" {
		t.Errorf("output of the third process %q, want %q", said, err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	mine, err := Open(path, 0o600)
	if err != nil {
		t.Fatalf("after its holder was killed: %v", err)
	}
	defer closed(t, mine)
	if _, said := holder(t, path); !strings.HasPrefix(said, explain(path, ErrHeld).Error()) {
		t.Errorf("output of another process %q while this process holds the lock", said)
	}
}
