package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pty is a separate terminal for a process.
type pty struct {
	master *os.File
	done   chan struct{} // closed at the end of the output

	mu    sync.Mutex
	shown bytes.Buffer
}

// openPty opens a pseudo terminal of a size. The second result is for the process.
func openPty(t *testing.T, columns, rows uint16) (*pty, *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{master: master, done: make(chan struct{})}
	p.resize(t, columns, rows)
	go func() {
		defer close(p.done)
		buffer := make([]byte, 32<<10)
		for {
			n, err := master.Read(buffer) // fails after the last process has closed its end
			p.mu.Lock()
			p.shown.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = master.Close() })
	return p, slave
}

func (p *pty) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
}

func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown.String()
}

// wait waits until a text appears after an offset, and returns its offset.
func (p *pty) wait(t *testing.T, from int, want string) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if at := strings.Index(p.text()[from:], want); at >= 0 {
			return from + at
		}
	}
	t.Fatalf("no %q is shown in\n%q", want, p.text()[from:])
	return 0
}

// clientIn runs a client of a run of the dummy model in a terminal.
func clientIn(t *testing.T, dir, address string, slave *os.File) *exec.Cmd {
	t.Helper()
	return runIn(t, dir, slave, clientBinary, "train", "--run-id", "a-run-id-that-needs-more-than-thirty-two-bytes", "--server-addr", address,
		"--known-servers", filepath.Join(dir, "known"), "--bind-p2p-address", "127.0.0.1", "--logs", "tui", "--events-dir", filepath.Join(dir, "events"))
}

// runIn runs a program in a terminal without colours.
func runIn(t *testing.T, dir string, slave *os.File, program string, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), "PSYCHE_TORCH_SHIM="+filepath.Join(dir, "none.so"), "DUMMY_TRAINING_DELAY_SECS=1.5", "TERM=xterm-256color", "NO_COLOR=1")
	command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	return command
}

// Control sequences of the terminal.
const (
	otherScreen = "\x1b[?1049h"
	ownScreen   = "\x1b[?1049l"
)

// TestClientDisplay trains in a real terminal: during a run, while the terminal's size changes, and
// up to a Ctrl-C that the terminal does not turn into a signal.
func TestClientDisplay(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprintf("interrupted %t", interrupted), func(t *testing.T) {
			t.Parallel()
			dir, address := t.TempDir(), freeAddress(t)
			state := filepath.Join(dir, "state.toml")
			writeFile(t, state, []byte(dummyState(1)))
			host, port, _ := net.SplitHostPort(address)
			server := start(t, "server", filepath.Join(dir, "server.log"), serverBinary, nil, "server", "run", "--state", state,
				"--server-addr", host, "--server-port", port, "--save-state-dir", filepath.Join(dir, "saved"), "--log", "json")
			server.waitText(t, "server is listening", 1)
			screen, slave := openPty(t, 80, 24)
			command := clientIn(t, dir, address, slave)
			screen.wait(t, 0, otherScreen)
			screen.wait(t, 0, "psyche-client")
			screen.wait(t, 0, "training")
			screen.wait(t, 0, "own batch")
			wide := strings.Repeat("─", 85) // of a line across 100 columns
			if strings.Contains(screen.text(), wide) {
				t.Error("a line is longer than 80 columns")
			}
			screen.resize(t, 100, 30)
			screen.wait(t, 0, wide)
			if interrupted {
				if _, err := screen.master.WriteString("\x03"); err != nil {
					t.Fatal(err)
				}
			}
			err := command.Wait()
			<-screen.done
			if code := command.ProcessState.ExitCode(); interrupted && code != 130 || !interrupted && err != nil {
				t.Errorf("ended with %v", err)
			}
			screen.checkEnd(t)
		})
	}
}

// checkEnd checks that the terminal was restored, and that nothing was drawn with colours.
func (p *pty) checkEnd(t *testing.T) {
	t.Helper()
	text := p.text()
	if !strings.Contains(text[strings.LastIndex(text, otherScreen):], ownScreen) {
		t.Errorf("the terminal was not restored: %q", tail(text, 5))
	}
	for _, colour := range []string{"\x1b[31m", "\x1b[32m", "\x1b[38;"} {
		if strings.Contains(text, colour) {
			t.Errorf("colour %q although NO_COLOR is set", colour)
		}
	}
}

// TestServerDisplay hosts a run in a real terminal, whose keys pause and resume the run.
func TestServerDisplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state.toml")
	writeFile(t, state, []byte(dummyState(1)))
	screen, slave := openPty(t, 80, 24)
	command := runIn(t, dir, slave, serverBinary, "server", "run", "--state", state, "--server-addr", "127.0.0.1", "--save-state-dir", filepath.Join(dir, "saved"), "--tui")
	screen.wait(t, 0, otherScreen)
	screen.wait(t, 0, "psyche server")
	screen.wait(t, 0, "waiting for 1 more member")
	screen.wait(t, 0, "listening")
	press := func(keys, want string) {
		t.Helper()
		from := len(screen.text())
		if _, err := screen.master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		screen.wait(t, from, want)
	}
	press("p", "y or n")
	press("n", "nothing")
	press("p", "y or n")
	press("y", "paused")
	press("p", "resume")
	press("y", "continues")
	press("\x03", ownScreen)
	err := command.Wait()
	<-screen.done
	if err != nil {
		t.Errorf("ended with %v\n%s", err, tail(screen.text(), 5))
	}
	screen.checkEnd(t)
}

// TestTestnetDisplay runs a whole network in a real terminal, through kills and a different size,
// and up to a Ctrl-C that the terminal does not turn into a signal. The list of events must stay in
// the terminal.
func TestTestnetDisplay(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "config", "state.toml"), []byte(strings.Replace(dummyState(2), "total_steps = 4", "total_steps = 400", 1)))
	screen, slave := openPty(t, 80, 24)
	command := runIn(t, dir, slave, serverBinary, "testnet", "start", "--num-clients", "2", "--client", clientBinary, "--config-path", filepath.Join(dir, "config"),
		"--run-dir", filepath.Join(dir, "runs"), "--kill-at-step", "2", "--restart-delay", "1")
	for _, want := range []string{otherScreen, "psyche testnet", "training", "witnesses reported", "trains", "killed in round", "was killed"} {
		screen.wait(t, 0, want)
	}
	wide := strings.Repeat("─", 85) // of a line across 100 columns
	if strings.Contains(screen.text(), wide) {
		t.Error("a line is longer than 80 columns")
	}
	screen.resize(t, 100, 30)
	screen.wait(t, 0, wide)
	if _, err := screen.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // the run was interrupted
	<-screen.done
	screen.checkEnd(t)
	text := screen.text()
	after := text[strings.LastIndex(text, ownScreen):]
	if code := command.ProcessState.ExitCode(); code == 0 || !strings.Contains(after, "killed in round") || !strings.Contains(after, "--resume") {
		t.Errorf("ended with %d and left %q", code, after)
	}
}
