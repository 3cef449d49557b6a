// Package torch binds libtorch: tensors, autograd, and the few fused pieces a
// transformer needs.
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
// An engine is one goroutine locked to its OS thread, because libtorch keeps grad mode
// and thread pools per thread. Operations run only inside Do; they panic on failure and
// Do returns the panic as an error, so that a model reads like its formulas.
//
// A tensor lives until the scope it was made in ends. [Scope.Keep] lets one outlive it,
// until [Tensor.Free] or the engine's Close; weights and optimizer state live like this.
// Finalizers play no part: Go's collector does not see libtorch's memory.
//
// Nothing here links against libtorch. Load opens the shim, a C++ library built by
// scripts/build-shim.sh from shim/, after the thread and BLAS settings are in the
// environment, which the libraries read only when they start.
package torch
