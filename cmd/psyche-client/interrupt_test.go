package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

const stalledFolder = "PSYCHE_TEST_STALLED_UPLOAD"

// stalledDestination accepts no data and blocks until its context ends.
type stalledDestination struct{ begun chan struct{} }

func (stalledDestination) String() string { return "a stalled destination" }

func (p stalledDestination) Upload(ctx context.Context, _ string, _ checkpoint.Facts, _ remote.Progress) (string, error) {
	close(p.begun)
	<-ctx.Done()
	return "", ctx.Err()
}

// TestStalledUpload is not a test. It is the process of TestSecondInterruptAbortsAnUpload, which
// waits for its last upload after an interrupt.
func TestStalledUpload(t *testing.T) {
	dir := os.Getenv(stalledFolder)
	if dir == "" {
		t.Skip("needs " + stalledFolder)
	}
	ctx, stop := signals.Context()
	defer stop()
	logger := slog.New(slog.DiscardHandler)
	place := stalledDestination{begun: make(chan struct{})}
	u := &uploads{destination: place, close: func() error { return nil }}
	u.start("run", dir, logger, nil)
	u.runner.Offer(filepath.Join(dir, "run-step3"), checkpoint.Facts{RunID: "run", Step: 3, Digest: strings.Repeat("0", 64)})
	<-place.begun
	fmt.Println("uploading")
	<-ctx.Done()
	fmt.Println("interrupted")
	fmt.Println("not reached:", uploadFlags{UploadTimeout: time.Hour}.finishUploads(ctx, u, logger))
}

// TestSecondInterruptAbortsAnUpload checks that the first interrupt waits for the last upload and
// that the second interrupt aborts it. The checkpoint is left for the next start.
func TestSecondInterruptAbortsAnUpload(t *testing.T) {
	dir := t.TempDir()
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: strings.Repeat("0", 64)}
	if err := checkpoint.WriteDir(filepath.Join(dir, "run-step3"), snapshot, facts.Extra()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestStalledUpload$")
	command.Env = append(os.Environ(), stalledFolder+"="+dir)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	await := func(want string) {
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Errorf("the process ended without printing %q", want)
	}
	interrupt := func() {
		if err := command.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
	await("uploading")
	interrupt()
	await("interrupted")
	ended := make(chan error, 1)
	go func() {
		for lines.Scan() {
			t.Errorf("it did not stop: %s", lines.Text())
		}
		ended <- command.Wait()
	}()
	for again := time.NewTicker(50 * time.Millisecond); ; { // until its signal handler has been removed
		interrupt()
		select {
		case err = <-ended:
		case <-again.C:
			continue
		}
		break
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want the signal", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".upload-*")); len(left) != 1 {
		t.Errorf("left for the next start: %v", left)
	}
}

// deafDestination accepts no data, and does not return when its context ends.
type deafDestination struct {
	stalledDestination
	end chan struct{}
}

func (p deafDestination) Upload(context.Context, string, checkpoint.Facts, remote.Progress) (string, error) {
	close(p.begun)
	<-p.end
	return "", errors.New("ended")
}

// TestInterruptLeavesAnUpload checks that a client that waits for its last upload after the end of
// its run ends soon after the first interrupt, whatever the upload location and the disk do. The
// checkpoint is left for the next start, and the client reports this.
func TestInterruptLeavesAnUpload(t *testing.T) {
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	defer close(end)
	for name, place := range map[string]func(begun chan struct{}) remote.Destination{
		"a destination that ends": func(begun chan struct{}) remote.Destination { return stalledDestination{begun} },
		"one that never ends":     func(begun chan struct{}) remote.Destination { return deafDestination{stalledDestination{begun}, end} },
	} {
		t.Run(name, func(t *testing.T) {
			dir, begun := t.TempDir(), make(chan struct{})
			facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: strings.Repeat("0", 64)}
			if err := checkpoint.WriteDir(filepath.Join(dir, "run-step3"), snapshot, facts.Extra()); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			logger := slog.New(slog.NewTextHandler(writer(func(p []byte) { said.Write(p) }), nil))
			u := &uploads{destination: place(begun), close: func() error { return nil }}
			u.start("run", dir, slog.New(slog.DiscardHandler), nil)
			u.runner.Offer(filepath.Join(dir, "run-step3"), facts)
			<-begun
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, interrupt)
			since := time.Now()
			err := uploadFlags{UploadTimeout: time.Minute}.finishUploads(ctx, u, logger)
			if took := time.Since(since); err == nil || took > 20*time.Second {
				t.Errorf("it ended after %v: %v", took, err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".upload-*")); len(left) != 1 || !strings.Contains(said.String(), "--checkpoint-dir") {
				t.Errorf("left %v, printed %s", left, said.String())
			}
		})
	}
}

// TestInterruptEndsTheAttemptsToConnect interrupts a client that tries to connect to a server that
// does not exist.
func TestInterruptEndsTheAttemptsToConnect(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	tried := make(chan struct{}, 1)
	logger := slog.New(slog.NewTextHandler(writer(func([]byte) {
		select {
		case tried <- struct{}{}:
		default:
		}
	}), nil))
	interrupt := errors.New("interrupt")
	go func() {
		<-tried
		cancel(interrupt)
	}()
	host, err := dial(ctx, tcp.Options{
		Addr: "127.0.0.1:1", RunID: "run", Key: identity.FromSeed([identity.SeedSize]byte{1}), MaxElapsed: time.Hour, Logger: logger,
	})
	if host != nil || !errors.Is(err, interrupt) {
		t.Errorf("dial = %v, %v; want the interrupt", host, err)
	}
}

// serve hosts a run named run until the test ends, and returns the server's address.
func serve(t *testing.T) string {
	t.Helper()
	return servertest.Start(t, server.Options{
		Runs: []server.Genesis{backendtest.Genesis("run", 2)},
	}).Address
}

// TestInterruptedClientWithdraws checks that an interrupted client can still submit its withdrawal
// to its server.
func TestInterruptedClientWithdraws(t *testing.T) {
	address := serve(t)
	ctx, interrupt := context.WithCancel(t.Context())
	key := identity.FromSeed([identity.SeedSize]byte{1})
	host, err := dial(ctx, tcp.Options{Addr: address, RunID: "run", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	me := coordinator.ClientID(key.ID())
	if err := host.Submit(t.Context(), coordinator.Join{}); err != nil {
		t.Error(err)
	}
	interrupt()
	for waited := time.After(300 * time.Millisecond); waited != nil; {
		select {
		case _, open := <-host.Updates():
			if !open {
				t.Fatalf("the interrupt ended the connection: %v", host.Err())
			}
		case <-waited:
			waited = nil
		}
	}
	if err := host.Submit(t.Context(), coordinator.Withdraw{Client: me}); err != nil {
		t.Errorf("withdrawal: %v", err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
}
