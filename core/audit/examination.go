package audit

// Recomputation says of which step of which trainer the gradient is to be computed again.
type Recomputation struct {
	Step    uint32
	Trainer [32]byte
	// Weights is the newest step whose results were applied to the weights that Step was
	// trained from: the step ApplyLag before it, unless an epoch began between.
	Weights uint32
	// Applied are the results of all steps that were applied since, newest first.
	Applied []Applied
	Chunks  []uint32
	// Shaken says to compute also from weights whose last bits are others, and to allow for what that changes. It
	// is asked for where a claim does not fit and the Reference is Shaky.
	Shaken bool
	// Precision is the type to compute in.
	Precision Precision
}

// Applied is what was applied of a step: the payloads of the results that counted, in ascending
// order of their batches.
type Applied struct {
	Step     uint32
	Payloads [][]byte
}
