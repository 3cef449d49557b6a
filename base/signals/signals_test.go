//go:build unix

package signals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/signals/signalstest"
)

const behaviour = "PSYCHE_TEST_SIGNALS"

// TestMain runs the behaviour that the environment variable names. If it is unset, TestMain runs
// the tests.
func TestMain(m *testing.M) {
	switch does := os.Getenv(behaviour); does {
	case "":
		signalstest.CatchHangups()
		os.Exit(m.Run())
	case "nohup":
		signal.Ignore(syscall.SIGHUP)
		fallthrough
	default:
		os.Exit(Run("program", func(ctx context.Context) int { return behave(ctx, does) }))
	}
}

func behave(ctx context.Context, does string) int {
	var again <-chan struct{}
	if does == "second" {
		again, _ = Second(ctx)
	}
	fmt.Println("ready")
	switch does {
	case "deaf":
		select {}
	case "holds", "second":
		Hold(ctx)
	case "releases":
		Last(ctx, func() { fmt.Println("last") })
		release := Hold(ctx)
		<-ctx.Done()
		time.Sleep(time.Second) // longer than the grace period
		release()
		release()
		select {}
	case "holds again":
		Hold(ctx)()
		Hold(ctx)
		does = "holds"
	}
	<-ctx.Done()
	fmt.Println("stopping")
	switch does {
	case "holds":
		time.Sleep(time.Second) // longer than the grace period
		return 3
	case "second":
		<-again
		return 4
	}
	return 2
}

// TestRun sends signals to programs and checks how they end. A code is an exit code, or minus the
// number of the signal that killed the program.
func TestRun(t *testing.T) {
	const hup, interrupt, term = syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM
	for _, c := range []struct {
		does string
		send []syscall.Signal
		code int
	}{
		{"returns", []syscall.Signal{interrupt}, 2},
		{"returns", []syscall.Signal{term}, 2},
		{"returns", []syscall.Signal{hup}, 2},
		{"deaf", []syscall.Signal{interrupt}, Interrupted},
		{"deaf", []syscall.Signal{hup}, Interrupted},
		{"holds", []syscall.Signal{hup}, 3},
		{"holds", []syscall.Signal{hup, hup, hup}, 3}, // when a terminal closes, the kernel sends one SIGHUP and the shell sends others
		{"holds", []syscall.Signal{interrupt, interrupt}, -int(interrupt)},
		{"holds", []syscall.Signal{hup, term}, -int(term)},
		{"second", []syscall.Signal{interrupt, term}, 4},
		{"second", []syscall.Signal{hup, hup, interrupt}, 4},
		{"releases", []syscall.Signal{term}, Interrupted},
		{"holds again", []syscall.Signal{term}, 3},
		{"nohup", []syscall.Signal{hup, hup, term}, 2},
	} {
		t.Run(fmt.Sprint(c.does, c.send), func(t *testing.T) {
			t.Parallel()
			if code := signalled(t, c.does, c.send); code != c.code {
				t.Errorf("ended with %d, want %d", code, c.code)
			}
		})
	}
}

// signalled starts a program and sends it signals. It returns the exit code, or minus the number of
// the signal that killed the program.
func signalled(t *testing.T, does string, send []syscall.Signal) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), behaviour+"="+does)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the program printed %q", lines.Text())
	}
	for i, s := range send {
		if err := command.Process.Signal(s); err != nil {
			t.Error(err)
		}
		if i == 0 && does != "deaf" && does != "nohup" {
			lines.Scan() // the line "stopping" or "last"
		}
		if i < len(send)-1 {
			time.Sleep(100 * time.Millisecond) // long enough for the next signal to count as a new one
		}
	}
	err = command.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0
	}
	if status, _ := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		return -int(status.Signal())
	}
	return exit.ExitCode()
}

// TestSecondAfterAnotherEnd checks that one signal is enough if ctx ended for another reason.
func TestSecondAfterAnotherEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("a key"))
	again, stop := Second(ctx)
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-again:
	case <-time.After(10 * time.Second):
		t.Error("no effect of the signal")
	}
}

// TestGoneReader checks that a program finishes its work although the reader of its output has
// exited.
func TestGoneReader(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), behaviour+"=holds")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	if err := command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); command.ProcessState.ExitCode() != 3 {
		t.Errorf("ended with %v, want exit code 3", err)
	}
}
