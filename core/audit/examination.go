package audit

// Recomputation identifies a step of a trainer whose gradient is to be recomputed.
type Recomputation struct {
	Step    uint32
	Trainer [32]byte
	// Weights is the newest step whose results were applied to the weights that Step was trained on:
	// the step ApplyLag before Step, unless an epoch started in between.
	Weights uint32
	// Applied contains all steps that have been applied after Weights, newest first.
	Applied []Applied
	Chunks  []uint32
	// Shaken requests a second computation, with weights whose last bits differ, and tolerance of
	// the resulting changes. It is set if a claim does not fit and the Reference is Shaky.
	Shaken bool
	// Precision is the type to compute in.
	Precision Precision
}

// Applied is a step that was applied: the payloads of its counted results, in ascending order of
// their batches, and their votes. Nil votes give each result a full vote.
type Applied struct {
	Step     uint32
	Payloads [][]byte
	Votes    []uint8
}
