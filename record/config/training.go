package config

// LRSchedule is the learning rate over the steps of a run. Exactly one field is set.
// All schedules rise linearly from WarmupInitLR to BaseLR in the first WarmupSteps.
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

// LinearLR falls on a straight line to FinalLR at TotalSteps and stays there.
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
// CosineDecayFinalLR, then on a straight line to LinearDecayFinalLR, and stays there.
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

// Optimizer is how gradients change the weights. Exactly one field is set.
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
	ClipGradNorm float64 // largest L2 norm of all gradients together; 0: no clipping
}

// Distro is the DisTrO optimizer: what clients exchange are the largest DCT
// coefficients of their momentum.
type Distro struct {
	ClipGradNorm     float64 // largest L2 norm of all gradients together; 0: no clipping
	WeightDecay      float64 // decoupled; 0: none
	CompressionDecay float64 // of the momentum, in [0, 1]
	CompressionTopK  uint16  // coefficients kept of each chunk, at least 1
	CompressionChunk uint16  // largest length of a chunk's side, 1 to 128
	Quantize1Bit     bool    // exchange signs only

	// ApplyLag is the number of rounds after which results are applied: 1, before the
	// next round is trained, or 2, to exchange them while it is. 0 means 1; see Lag.
	ApplyLag uint8 `json:",omitempty"`
	// Lookahead computes gradients where the momentum that was not sent yet would lead.
	Lookahead bool `json:",omitempty"`
}

// MaxApplyLag is the largest ApplyLag.
const MaxApplyLag = 2

// MaxOuterLR is the largest OuterLR: with more, a round goes past where its results are by more than they came.
const MaxOuterLR = 2

// Lag returns ApplyLag, or its default.
func (d Distro) Lag() uint32 { return max(uint32(d.ApplyLag), 1) }

// What inner_optimizer can be. Muon moves the matrices of hidden layers, and AdamW all else then.
const (
	AdamWName = "adamw" // stands for an empty InnerOptimizer
	Muon      = "muon"
)

// LocalSteps lets each client make many steps of an optimizer by itself in a round; what clients exchange is
// how far they came.
type LocalSteps struct {
	InnerSteps     uint16     // of a round, at least 1
	InnerOptimizer string     `json:",omitempty"` // empty: AdamW; or Muon
	Betas          [2]float64 // of AdamW, as all that follow up to ClipGradNorm
	WeightDecay    float64
	Eps            float64
	ClipGradNorm   float64 // largest L2 norm of all gradients of a step together; 0: no clipping

	OuterLR          float64 // share of the mean result by which a round moves the weights, above 0, at most 2
	OuterMomentum    float64 // of Nesterov, of how far a client came, at least 0, below 1; 0: none
	CompressionTopK  uint16  // coefficients kept of each chunk, at least 1
	CompressionChunk uint16  // largest length of a chunk's side, 1 to 128
	ValueBits        uint8   // that a coefficient takes besides its place, 1 to 4
	ErrorDecay       float64 // of what could not be sent yet, from a round to the next, in [0, 1]
	ApplyLag         uint8   `json:",omitempty"` // as that of Distro
}

// Lag returns ApplyLag, or its default.
func (l LocalSteps) Lag() uint32 { return max(uint32(l.ApplyLag), 1) }

// Inner returns the optimizer of a client's own steps.
func (l LocalSteps) Inner() AdamW {
	return AdamW{Betas: l.Betas, WeightDecay: l.WeightDecay, Eps: l.Eps, ClipGradNorm: l.ClipGradNorm}
}

// Dummy is an optimizer that changes nothing, for tests of the network.
type Dummy struct{}
