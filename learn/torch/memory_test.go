package torch_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestErrMemory checks that allocators' messages are recognised, with the size.
func TestErrMemory(t *testing.T) {
	for message, want := range map[string]string{
		"[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)": "4.0 KiB",
		"CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 79.11 GiB total capacity)":                                                                                  "2.50 GiB",
		"std::bad_alloc": "",
	} {
		err := &torch.Error{Op: "zeros", Message: message}
		if got := err.Wanted(); got != want || !errors.Is(fmt.Errorf("step 1: %w", err), torch.ErrMemory) {
			t.Errorf("%s: size %q, want %q; known: %v", message, got, want, errors.Is(err, torch.ErrMemory))
		}
	}
	failed := &torch.Error{Op: "zeros", Message: "[enforce fail at alloc_cpu.cpp:75] can't allocate memory: you tried to allocate 4096 bytes. Error code 12"}
	if got, want := failed.Error(), "torch: zeros: out of memory, 4.0 KiB wanted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := (&torch.Error{Op: "matmul", Message: "mat1 and mat2 shapes cannot be multiplied"}); errors.Is(err, torch.ErrMemory) || err.Wanted() != "" {
		t.Error("a different failure counts as a lack of memory")
	}
}

// TestAllocationFails checks that a tensor too large for the memory is an error, and that the
// engine works after it.
func TestAllocationFails(t *testing.T) {
	e := torchtest.Engine(t)
	zeros := func(n int64) error {
		return e.Do(t.Context(), false, func(s *torch.Scope) error {
			_ = s.Zeros(torch.F32, n)
			return nil
		})
	}
	err := zeros(1 << 50)
	wrong, ok := errors.AsType[*torch.Error](err)
	if !ok || !errors.Is(err, torch.ErrMemory) || wrong.Wanted() != "4096.0 TiB" {
		t.Errorf("4 PiB: %v", err)
	}
	if err := zeros(4); err != nil {
		t.Error(err)
	}
}
