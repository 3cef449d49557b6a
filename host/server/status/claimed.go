package status

import (
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/record/event"
)

// claimedText says what the witnesses of a round claim, a line for each figure, and who is far from the
// median of the loss.
func claimedText(c *event.Claimed) (lines []string) {
	if c == nil {
		return nil
	}
	if l := c.Loss; l.Count > 0 {
		lines = append(lines, fmt.Sprintf("loss %.3f ± %.3f in step %d: the median of what %d of %d witnesses say", l.Median, l.Spread, c.Step, l.Count, c.Witnesses))
	}
	if s := c.Speed; s.Count > 0 {
		lines = append(lines, fmt.Sprintf("%.0f ± %.0f tokens/s of one member, likewise of %d", s.Median, s.Spread, s.Count))
	}
	if len(c.Loss.Far) > 0 {
		lines = append(lines, "far from the loss of the others: "+strings.Join(c.Loss.Far, ", "))
	}
	return lines
}
