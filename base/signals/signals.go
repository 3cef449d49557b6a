// Package signals ends programs on SIGINT, SIGTERM or SIGHUP.
//
// A main calls Run, and a command passes its context on:
//
//	os.Exit(signals.Run("psyche", func(ctx context.Context) int { return run(ctx, os.Args) }))
//
// The first signal ends the context. If the command does not return soon after, Run abandons it, unless
// the command has called Hold because it must finish its work. Last registers functions that
// Run calls before it abandons the command. A second SIGINT or SIGTERM ends the
// program at once, unless a command listens for it with Second. A second SIGHUP has no effect, because
// both the kernel and the shell send SIGHUP when a terminal closes.
//
// A program that was started with SIGHUP ignored, as by nohup, keeps ignoring it.
package signals

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Interrupted is the exit code of a command that a signal ended.
const Interrupted = 130

// grace is the time for a command that holds no work to return after a signal.
const grace = 400 * time.Millisecond

// workKey is the key of a context's *work.
type workKey struct{}

// work counts the reasons for a program to continue after a signal, and contains the functions that
// Last registered.
type work struct {
	mu      sync.Mutex
	holds   int
	changed chan struct{} // closed when holds reaches 0 again
	last    []func()
}

// free returns a channel that is closed when no call of Hold is in effect.
func (w *work) free() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds > 0 {
		return w.changed
	}
	free := make(chan struct{})
	close(free)
	return free
}

// held reports whether the program must finish its work.
func (w *work) held() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds > 0
}

// finish calls the functions that Last registered.
func (w *work) finish() {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	for _, do := range last {
		do()
	}
}

// Run calls program with a context that ends with the first signal, and returns its exit code. If
// program does not return soon after the signal and holds no work (Hold), Run abandons it: Run calls
// the functions that Last registered, prints that the program named name was interrupted, and returns
// Interrupted.
func Run(name string, program func(context.Context) int) int {
	ctx, stop := Context()
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- program(ctx) }()
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	w, _ := ctx.Value(workKey{}).(*work)
	for free := w.free(); ; free = w.free() {
		select {
		case code := <-ended:
			return code
		case <-free:
		}
		select {
		case code := <-ended:
			return code
		case <-time.After(grace):
		}
		if !w.held() {
			break
		}
	}
	w.finish()
	_, _ = fmt.Fprintln(os.Stderr, name+": interrupted")
	return Interrupted
}

// Hold lets the program finish its work after a signal, without a time limit, until the caller
// calls release. The context comes from Run or Context, or is derived from it; Hold ignores other
// contexts. A release may be called twice.
func Hold(ctx context.Context) (release func()) {
	w, _ := ctx.Value(workKey{}).(*work)
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds++; w.holds == 1 {
		w.changed = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.holds--; w.holds == 0 {
			close(w.changed)
		}
	})
}

// Last registers a function that Run calls before it abandons the program, for instance to restore the
// terminal. Functions run in the order of their registration, must return soon, and may run
// concurrently with the program.
func Last(ctx context.Context, do func()) {
	if w, _ := ctx.Value(workKey{}).(*work); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = append(w.last, do)
	}
}

// Context returns a context that ends with the first SIGINT, SIGTERM or SIGHUP; the caller calls
// stop when the program's work is done. It is for programs that cannot use Run.
func Context() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), workKey{}, new(work)))
	typed, closed := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(typed, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(closed, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-typed:
		case <-closed:
		case <-ctx.Done():
			return
		}
		// The same signal may have ended the reader of the output, such as tee. Writing to it must not
		// end the program.
		signal.Ignore(syscall.SIGPIPE)
		cancel()
		signal.Stop(typed) // the next signal has its usual effect
	}()
	return ctx, func() {
		cancel()
		signal.Stop(typed)
		signal.Stop(closed)
	}
}

// Second returns a channel that is closed at the second SIGINT or SIGTERM, which then does not end
// the program. SIGHUP counts as a first signal only. If ctx ended for a reason other than a signal,
// the first signal counts as the second. The caller calls stop when it no longer listens.
func Second(ctx context.Context) (again <-chan struct{}, stop func()) {
	signals, second := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	over := make(chan struct{})
	go func() {
		for reported := false; ; {
			select {
			case s := <-signals:
				cause := context.Cause(ctx)
				first := !reported && (cause == nil || cause == context.Canceled) //nolint:errorlint // the exact cause that Context sets
				if reported = true; first || s == syscall.SIGHUP {
					continue
				}
				close(second)
			case <-over:
			}
			return
		}
	}()
	return second, func() {
		signal.Stop(signals)
		close(over)
	}
}
