package event

import "github.com/psyche-go/psyche/core/coordinator"

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
