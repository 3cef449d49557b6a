package torch

// LinearCrossEntropyRows is LinearCrossEntropy that computes the logits of the given number of rows
// at a time.
func LinearCrossEntropyRows(x, weight, targets *Tensor, rows int64) *Tensor {
	return x.linearCrossEntropy(weight, targets, rows, 0)
}

// LoadError is the error for a shim that cannot be opened.
func LoadError(path, message string, stale bool) error { return loadError(path, message, stale) }

// BetterKernels returns the choice of OpenBLAS's kernels for a CPU with the given vector
// instructions.
func BetterKernels(chosen string, avx2, avx512 bool) string {
	return betterKernels(chosen, vectors{avx2: avx2, avx512: avx512})
}

// HasAVX2 reports whether this CPU has AVX2 and FMA.
func HasAVX2() bool { return ownVectors().avx2 }

// PreloadBLAS does the same as Load does with OpenBLAS, for the OpenBLAS in folder and a CPU with
// AVX2.
func PreloadBLAS(folder string) Info {
	var info Info
	info.findOpenBLAS(coreType, false)
	preloadBLAS(folder, vectors{avx2: true}, &info)
	info.Kernels = openBLASKernels(nil)
	info.checkSettings()
	info.checkKernels(vectors{avx2: true})
	return info
}

// OpenBLASFolder returns the folder whose OpenBLAS Load opens for a shim.
func OpenBLASFolder(shim string) string { return openBLASFolder(shim) }

// ErrNested is for the tests from outside the package.
var ErrNested = errNested
