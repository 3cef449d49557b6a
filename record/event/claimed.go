package event

import (
	"encoding/hex"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Claimed contains the unverified statements of a round's witnesses about their own training. If a
// quorum of them is honest, the median is within the range of honest claims.
type Claimed struct {
	Step      uint32 `json:"step"`           // of the round, which is over
	Witnesses int    `json:"witnesses"`      // number of accepted proofs
	Loss      Claims `json:"loss"`           // nats per token
	Speed     Claims `json:"tokens_per_sec"` // of one member, while it computes
}

// Claims summarizes what members claim about one value. It is zero without claims.
type Claims struct {
	Count  int      `json:"claims"`
	Median float64  `json:"median"`
	Spread float64  `json:"spread"`        // median of the claims' distances from Median
	Far    []string `json:"far,omitempty"` // members whose claim is far from Median, base58
}

// String returns median and spread of the claimed losses, and the members whose claim is far from
// the median. It is empty without claims.
func (c *Claimed) String() string {
	if c == nil || c.Loss.Count == 0 {
		return ""
	}
	text := fmt.Sprintf("claimed loss %.3f ± %.3f: step %d, %d of %d witnesses", c.Loss.Median, c.Loss.Spread, c.Step, c.Loss.Count, c.Witnesses)
	const named = 2
	for i, id := range c.Loss.Far[:min(len(c.Loss.Far), named)] {
		text += []string{", far ", ", "}[min(i, 1)] + id[:min(8, len(id))]
	}
	if more := len(c.Loss.Far) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ClaimedOf returns the claims of the newest finished round of a state, or nil if there are none.
func ClaimedOf(s *coordinator.State) *Claimed {
	round, found := s.Claimed()
	if !found {
		return nil
	}
	return &Claimed{
		Step: round.Step, Witnesses: len(round.Witnesses),
		Loss: claimsOf(round.Losses(), coordinator.LossUnit), Speed: claimsOf(round.Speeds(), 1),
	}
}

// HeldOut contains the unverified statements of members about the loss of the run's checkpoint on
// held-out data, in nats per token. Each member measures its own held-out data.
type HeldOut struct {
	Step   uint32 `json:"step"`   // of the checkpoint
	Digest string `json:"digest"` // of the checkpoint, hex
	Loss   Claims `json:"loss"`
}

// String returns the median of the claims, their spread if there are several, and their number. It is empty
// without claims.
func (h *HeldOut) String() string {
	switch {
	case h == nil || h.Loss.Count == 0:
		return ""
	case h.Loss.Count == 1:
		return fmt.Sprintf("claimed held-out loss %.3f: step %d, 1 member", h.Loss.Median, h.Step)
	}
	return fmt.Sprintf("claimed held-out loss %.3f ± %.3f: step %d, %d members", h.Loss.Median, h.Loss.Spread, h.Step, h.Loss.Count)
}

// HeldOutOf returns the claims about the checkpoint of a state, or nil if the state contains none.
func HeldOutOf(s *coordinator.State) *HeldOut {
	losses, at := s.HeldOut(), s.Model.Checkpoint
	if losses.Count == 0 {
		return nil
	}
	return &HeldOut{Step: at.Step, Digest: hex.EncodeToString(at.Digest[:]), Loss: claimsOf(losses, coordinator.LossUnit)}
}

func claimsOf(c coordinator.Claims, unit float64) Claims {
	shown := Claims{Count: c.Count, Median: float64(c.Median) / unit, Spread: float64(c.Spread) / unit}
	for _, id := range c.Far {
		shown.Far = append(shown.Far, nameOf(id))
	}
	return shown
}
