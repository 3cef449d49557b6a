package torch

// #include "bind.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

var (
	// ErrNoType means that an element type does not work on a device.
	ErrNoType = errors.New("element type does not work on this device")
	// ErrSlowType means that an element type works, but is slower than f32.
	ErrSlowType = errors.New("element type is slower than f32 on this device")
)

// LoopThreads measures how many threads execute one of the shim's own loops, such as a softmax. It
// is the engine's number of threads, or one if the shim was compiled without OpenMP.
func (e *Engine) LoopThreads(ctx context.Context) (threads int, err error) {
	err = e.Do(ctx, false, func(*Scope) error {
		threads = int(C.pt_loop_threads())
		return nil
	})
	return threads, err
}

// CheckBF16 multiplies two matrices in bf16 and in f32. It returns [ErrNoType] if bf16 does not
// work, and [ErrSlowType] if it was slower. This is a measurement, so two calls may differ. A CPU
// needs AVX-512 BF16 or AMX for bf16. Without them, some libraries convert every element and others
// refuse. NVIDIA's devices support bf16 since the Ampere generation. The measurements of the two
// types alternate, and are repeated while bf16 looks slow, so that other work on the machine does
// not determine the result.
func (e *Engine) CheckBF16(ctx context.Context) error {
	const fewest, most = 3, 30
	size := int64(512)
	if e.device != CPU {
		size = 4096 // a smaller product ends before the device has started
	}
	var product float64
	times := map[DType]time.Duration{F32: math.MaxInt64, BF16: math.MaxInt64}
	err := e.Do(ctx, false, func(s *Scope) error {
		for turn := 0; turn < most && ctx.Err() == nil && (turn < fewest || times[BF16] > times[F32]); turn++ {
			for _, dtype := range []DType{F32, BF16} {
				err := s.Sub(func(s *Scope) error { // frees the matrices
					a, b := s.Full(dtype, 1, size, size), s.Full(dtype, 0.5, size, size)
					begin := time.Now()
					product = a.Matmul(b).To(F32).Mean().Item()
					times[dtype] = min(times[dtype], time.Since(begin))
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("torch: %w: bf16 on %s: %w; use f32", ErrNoType, e.device, err)
	case product != float64(size)/2:
		return fmt.Errorf("torch: %w: bf16 on %s multiplies wrongly (%v, want %v); use f32", ErrNoType, e.device, product, float64(size)/2)
	case times[BF16] > times[F32]:
		return fmt.Errorf("torch: %w: a product in bf16 takes %v on %s, in f32 %v", ErrSlowType, times[BF16], e.device, times[F32])
	}
	return nil
}
