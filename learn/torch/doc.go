// Package torch binds libtorch: tensors, autograd, and a few fused operations for transformers.
//
// The main types are [Engine], [Scope] and [Tensor]. The order of calls is
//
//	torch.Load(torch.Options{Threads: 1})      // once per process, before anything else
//	engine, err := torch.NewEngine(torch.CPU)  // one per device
//	err = engine.Do(ctx, true, func(s *torch.Scope) error {
//		x := s.FromFloat32s([]float32{1, 2, 3}, 3).SetRequiresGrad(true)
//		loss := x.Mul(x).Sum()
//		loss.Backward()
//		use(x.Grad().Float32s())
//		return nil
//	})                                         // everything made inside is freed here
//	engine.Close()
//
// An engine is one goroutine locked to its OS thread, because libtorch keeps the grad mode and thread
// pools per thread. Operations run only inside Do. They panic on failure, and Do returns the panic as an
// error, so the code of a model reads like its formulas.
//
// A tensor lives until its scope ends. [Scope.Keep] extends its life until [Tensor.Free] or the
// engine's Close, for example for weights and optimizer state. There are no finalizers, because
// Go's collector does not see libtorch's memory.
//
// This package does not link against libtorch. Load opens the shim, a C++ library that
// scripts/build-shim.sh builds from shim/. Before that, Load sets environment variables for threads
// and BLAS, which the libraries read only when they start.
package torch
