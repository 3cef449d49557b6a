package event

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Claimed is what the witnesses of a round claim of their own training. Nobody can check a claim; of a
// quorum of honest members their median is one of theirs, whatever the others say.
type Claimed struct {
	Step      uint32 `json:"step"`           // of the round, which is over
	Witnesses int    `json:"witnesses"`      // whose proofs were accepted
	Loss      Claims `json:"loss"`           // nats per token
	Speed     Claims `json:"tokens_per_sec"` // of one member, while it computes
}

// Claims are what members claim of one figure. Zeros: none does.
type Claims struct {
	Count  int      `json:"claims"`
	Median float64  `json:"median"`
	Spread float64  `json:"spread"`        // median of the claims' distances from Median
	Far    []string `json:"far,omitempty"` // members whose claim is far from Median, base58
}

// String says what the witnesses claim of their loss, median and spread, and who is far from
// it; it is empty where none does.
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

// ClaimedOf returns what is claimed of the newest round of a state that is over; nil: nothing.
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

func claimsOf(c coordinator.Claims, unit float64) Claims {
	shown := Claims{Count: c.Count, Median: float64(c.Median) / unit, Spread: float64(c.Spread) / unit}
	for _, id := range c.Far {
		shown.Far = append(shown.Far, nameOf(id))
	}
	return shown
}
