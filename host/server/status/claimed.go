package status

import (
	"fmt"

	"github.com/psyche-go/psyche/record/event"
)

// claimedText describes the claims of a round's witnesses, and the witnesses whose loss is far from
// the median, one line each.
func claimedText(c *event.Claimed) (lines []string) {
	if c == nil {
		return nil
	}
	if text := c.String(); text != "" {
		lines = append(lines, text)
	}
	for _, id := range c.Loss.Far {
		lines = append(lines, "far from the median: "+id)
	}
	if s := c.Speed; s.Count > 0 {
		lines = append(lines, fmt.Sprintf("claimed speed %.0f ± %.0f tokens/s of one member: %d witnesses", s.Median, s.Spread, s.Count))
	}
	return lines
}
