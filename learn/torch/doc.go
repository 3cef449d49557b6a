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
// A tensor lives until its scope ends. [Scope.Keep] makes it live until [Tensor.Free] or the engine's
// Close, as for weights and optimizer state. There are no finalizers: Go's collector does not see
// libtorch's memory.
//
// Nothing here links against libtorch. Load opens the shim, a C++ library that scripts/build-shim.sh
// builds from shim/. Before that, it sets the thread and BLAS settings in the environment, which the
// libraries read only at their start.
package torch
