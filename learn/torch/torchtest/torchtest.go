// Package torchtest provides an engine for tests, or skips them if libtorch is missing.
//
// The main function is [Engine]. With PSYCHE_REQUIRE_TORCH=1 in the environment, as in continuous
// integration, a missing libtorch fails the test instead.
package torchtest

import (
	"errors"
	"os"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
)

// Load loads libtorch with one thread, or skips the test with the reason.
func Load(t testing.TB) {
	t.Helper()
	err := torch.Load(torch.Options{Threads: 1})
	switch {
	case err == nil:
	case torch.Missing(err) && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1":
		t.Skipf("libtorch is needed: %v", err)
	default:
		t.Fatal(err)
	}
}

// Engine returns a CPU engine that is closed when the test ends.
func Engine(t testing.TB) *torch.Engine {
	t.Helper()
	Load(t)
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// BF16 reports whether bf16 computes correctly on this machine, and logs the reason if it does not.
// Libraries without kernels for a processor may accumulate in bf16.
func BF16(t testing.TB) bool {
	t.Helper()
	err := Engine(t).CheckBF16(t.Context())
	if errors.Is(err, torch.ErrNoType) {
		t.Logf("without bf16: %v", err)
		return false
	}
	return true
}

// Do runs fn on the engine and fails the test on an error.
func Do(t testing.TB, engine *torch.Engine, grad bool, fn func(s *torch.Scope) error) {
	t.Helper()
	if err := engine.Do(t.Context(), grad, fn); err != nil {
		t.Fatal(err)
	}
}
