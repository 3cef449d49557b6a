package audit

// Recomputation identifies a step of a trainer whose gradient is to be recomputed.
type Recomputation struct {
	Step    uint32
	Trainer [32]byte
	// Weights is the newest step whose results were part of the weights that Step was trained on:
	// the step ApplyLag before it, unless an epoch started in between.
	Weights uint32
	// Applied are the results of all steps that have been applied since then, newest first.
	Applied []Applied
	Chunks  []uint32
	// Shaken requests to also compute with weights whose last bits differ, and to tolerate the
	// resulting changes. It is used if a claim does not fit and the Reference is Shaky.
	Shaken bool
	// Precision is the type to compute in.
	Precision Precision
}

// Applied is a step that was applied: the payloads of its counted results, in ascending order of
// their batches.
type Applied struct {
	Step     uint32
	Payloads [][]byte
}
