package torch

// LinearCrossEntropyRows is LinearCrossEntropy with so many rows of logits at a time.
func LinearCrossEntropyRows(x, weight, targets *Tensor, rows int64) *Tensor {
	return x.linearCrossEntropy(weight, targets, rows)
}

// LoadError is the error of a shim that does not open.
func LoadError(path, message string, stale bool) error { return loadError(path, message, stale) }
