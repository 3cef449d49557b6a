package config

// LRSchedule is the learning rate over the steps of a run. Exactly one field is set. All schedules
// rise linearly from WarmupInitLR to BaseLR in the first WarmupSteps.
type LRSchedule struct {
	Constant          *ConstantLR          `json:",omitempty"`
	Linear            *LinearLR            `json:",omitempty"`
	Cosine            *CosineLR            `json:",omitempty"`
	WarmupStableDecay *WarmupStableDecayLR `json:",omitempty"`
}

// base returns the learning rate at the end of the warm-up.
func (s LRSchedule) base() float64 {
	switch {
	case s.Constant != nil:
		return s.Constant.BaseLR
	case s.Linear != nil:
		return s.Linear.BaseLR
	case s.Cosine != nil:
		return s.Cosine.BaseLR
	case s.WarmupStableDecay != nil:
		return s.WarmupStableDecay.BaseLR
	default:
		return 0
	}
}

// ConstantLR stays at BaseLR.
type ConstantLR struct {
	BaseLR       float64
	WarmupSteps  uint32
	WarmupInitLR float64
}

// LinearLR falls linearly to FinalLR at TotalSteps and stays there.
type LinearLR struct {
	BaseLR       float64
	WarmupSteps  uint32
	WarmupInitLR float64
	TotalSteps   uint32 // more than WarmupSteps
	FinalLR      float64
}

// CosineLR falls on half a cosine to FinalLR at TotalSteps.
type CosineLR struct {
	BaseLR       float64
	WarmupSteps  uint32
	WarmupInitLR float64
	TotalSteps   uint32 // more than WarmupSteps
	FinalLR      float64
}

// WarmupStableDecayLR stays at BaseLR for StableSteps, falls on half a cosine to
// CosineDecayFinalLR, then linearly to LinearDecayFinalLR, and stays there.
type WarmupStableDecayLR struct {
	BaseLR             float64
	WarmupSteps        uint32
	WarmupInitLR       float64
	StableSteps        uint32
	CosineDecaySteps   uint32
	CosineDecayFinalLR float64 // at most BaseLR
	LinearDecaySteps   uint32
	LinearDecayFinalLR float64 // at most CosineDecayFinalLR
}

// Optimizer determines how gradients change the weights. Exactly one field is set.
type Optimizer struct {
	AdamW      *AdamW      `json:",omitempty"`
	Distro     *Distro     `json:",omitempty"`
	Dummy      *Dummy      `json:",omitempty"`
	LocalSteps *LocalSteps `json:",omitempty"`
}

// AdamW is Adam with decoupled weight decay. It exchanges nothing between clients.
type AdamW struct {
	Betas        [2]float64
	WeightDecay  float64
	Eps          float64
	ClipGradNorm float64 // maximum L2 norm of all gradients together; 0: no clipping
}

// Distro is the DisTrO optimizer. Clients exchange the largest DCT coefficients of their momentum.
type Distro struct {
	ClipGradNorm     float64 // maximum L2 norm of all gradients together; 0: no clipping
	WeightDecay      float64 // decoupled; 0: none
	CompressionDecay float64 // of the momentum, in [0, 1]
	CompressionTopK  uint16  // coefficients kept of each chunk, at least 1
	CompressionChunk uint16  // maximum length of a chunk's side, 1 to 128
	Quantize1Bit     bool    // exchange only signs

	// ApplyLag is the number of rounds after which results are applied. With 1 they are applied
	// before the next round is trained, with 2 they are exchanged during the next round. 0 means 1;
	// see Lag.
	ApplyLag uint8 `json:",omitempty"`
	// Lookahead computes gradients at the weights that would result from applying the momentum not
	// yet sent.
	Lookahead bool `json:",omitempty"`
}

// MaxApplyLag is the largest ApplyLag.
const MaxApplyLag = 2

// MaxOuterLR is the largest OuterLR. With more than 2, a round would overshoot the mean result by
// more than the distance to it.
const MaxOuterLR = 2

// Lag returns ApplyLag, or the default if it is 0.
func (d Distro) Lag() uint32 { return max(uint32(d.ApplyLag), 1) }

// Values of inner_optimizer. Muon trains the matrices of hidden layers, with AdamW for all other
// tensors.
const (
	AdamWName = "adamw" // the default, stored as an empty InnerOptimizer
	Muon      = "muon"
)

// LocalSteps lets each client make many optimizer steps locally in a round. Clients exchange the
// resulting change of their weights (the pseudo-gradient).
type LocalSteps struct {
	InnerSteps     uint16     // per round, at least 1
	InnerOptimizer string     `json:",omitempty"` // empty: AdamW; or Muon
	Betas          [2]float64 // of AdamW, like WeightDecay, Eps and ClipGradNorm
	WeightDecay    float64
	Eps            float64
	ClipGradNorm   float64 // maximum L2 norm of all gradients of a step together; 0: no clipping

	OuterLR          float64 // factor of the mean result in a round's update of the weights, above 0, at most 2
	OuterMomentum    float64 // Nesterov momentum of the pseudo-gradient, at least 0, below 1; 0: none
	CompressionTopK  uint16  // coefficients kept of each chunk, at least 1
	CompressionChunk uint16  // maximum length of a chunk's side, 1 to 128
	ValueBits        uint8   // bits of a coefficient's value, in addition to its index, 1 to 4
	ErrorDecay       float64 // factor from round to round for the residual that was not sent, in [0, 1]
	ApplyLag         uint8   `json:",omitempty"` // as Distro.ApplyLag
}

// Lag returns ApplyLag, or the default if it is 0.
func (l LocalSteps) Lag() uint32 { return max(uint32(l.ApplyLag), 1) }

// Inner returns the optimizer of a client's local steps.
func (l LocalSteps) Inner() AdamW {
	return AdamW{Betas: l.Betas, WeightDecay: l.WeightDecay, Eps: l.Eps, ClipGradNorm: l.ClipGradNorm}
}

// Dummy is an optimizer that changes nothing, for tests of the network.
type Dummy struct{}
