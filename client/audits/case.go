package audits

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/distro/codec"
)

// ErrBreach says that a trainer's momentum goes on from another result than it may.
var ErrBreach = errors.New("the momentum goes on from another result than it may")

// ErrNotKept says that something is not known here any more, or was never.
var ErrNotKept = errors.New("not kept here")

// Case is what is known of a result that is audited.
type Case struct {
	Result Result
	Heads  []Head // of its trainer's results before, newest first
	// Since is the first step that the trainer's optimizer remembers, as the run knows it.
	Since uint32
	Lag   uint32
	// Weights is the newest step that was applied to the weights that the step was trained from.
	Weights uint32
}

// Case returns what is known of the result of a trainer in a step that was applied.
func (p *Past) Case(step uint32, trainer coordinator.ClientID, since, lag uint32) (Case, error) {
	result, found := p.Find(step, trainer)
	if !found {
		return Case{}, fmt.Errorf("result of step %d: %w", step, ErrNotKept)
	}
	return Case{
		Result: result, Heads: p.Heads(trainer, step), Since: since, Lag: lag,
		Weights: max(step-min(lag, step), result.Head.EpochStart-1),
	}, nil
}

// Claims returns what the trainer says with its evidence. There are two where it is not known here
// whether the result counted that the momentum goes on from: one of them has to be true. An error
// that wraps ErrBreach says that no honest trainer says so.
func (c *Case) Claims(h codec.Header, result []codec.TensorResult, e Evidence) ([]audit.Claim, error) {
	claim, newest := audit.Claim{Opening: e.Opening, Result: result, Header: h}, c.newest()
	switch {
	case h.Previous == 0 && newest.Step >= c.Since && newest.Step != 0:
		return nil, fmt.Errorf("%w: from zeros, after a result of step %d; its optimizer remembers since step %d", ErrBreach, newest.Step, c.Since)
	case h.Previous == 0:
		return []audit.Claim{claim}, nil
	case h.Previous < newest.Step || h.Previous >= c.Result.Head.Step:
		return nil, fmt.Errorf("%w: from step %d, the newest before is of step %d", ErrBreach, h.Previous, newest.Step)
	}
	previous, known, err := c.head(h.Previous, e)
	if err != nil {
		return nil, err
	}
	claim.PreviousRoot = previous.Root
	if err := c.earlier(&claim, previous, e); err != nil {
		return nil, err
	}
	settled := previous.Step+c.Lag <= c.Result.Head.Step || previous.Step < c.Result.Head.EpochStart
	claim.PreviousReturned = settled && !previous.Counted
	claims := []audit.Claim{claim}
	if settled && !known {
		claim.PreviousReturned = false
		claims = append(claims, claim)
	}
	return claims, nil
}

// newest returns the head of the newest result before, the zero value where none is known.
func (c *Case) newest() Head {
	if len(c.Heads) == 0 {
		return Head{}
	}
	return c.Heads[0]
}

// Bound reports whether what the trainer can show is bound by what everybody has: all results that
// its momentum goes on from are known here. Of others it could show one member this and another
// one that.
func (c *Case) Bound() bool {
	previous := c.Result.Head.Previous
	if previous == 0 || previous < c.newest().Step {
		return true // there is nothing to show, or it is wrong whatever is shown
	}
	i := slices.IndexFunc(c.Heads, func(h Head) bool { return h.Step == previous })
	if i < 0 {
		return false
	}
	before := c.Heads[i].Previous
	return c.Lag < 2 || before == 0 || before+1 < previous || slices.ContainsFunc(c.Heads, func(h Head) bool { return h.Step == before })
}

// head returns that of a step: the one that is known here, or the one that the trainer shows, of
// which nobody knows here whether it counted.
func (c *Case) head(step uint32, e Evidence) (h Head, known bool, err error) {
	if i := slices.IndexFunc(c.Heads, func(h Head) bool { return h.Step == step }); i >= 0 {
		return c.Heads[i], true, nil
	}
	if i := slices.IndexFunc(e.Heads, func(h Head) bool { return h.Step == step }); i >= 0 {
		shown := e.Heads[i]
		if newest := c.newest(); step > newest.Step && shown.Previous < newest.Step && newest.Step >= c.Since {
			return Head{}, false, fmt.Errorf("%w: the result of step %d leaves out that of step %d", ErrBreach, step, newest.Step)
		}
		shown.Counted = false
		if shown.EpochStart = 0; step >= c.Result.Head.EpochStart {
			shown.EpochStart = c.Result.Head.EpochStart
		}
		return shown, false, nil
	}
	return Head{}, false, fmt.Errorf("%w: from step %d, of which it shows nothing", ErrBreach, step)
}

// earlier checks which result was given back between the two, and enters its root.
func (c *Case) earlier(claim *audit.Claim, previous Head, e Evidence) error {
	said := claim.Opening.Earlier
	before := previous.Previous
	// It was applied after the next one was made: with a lag of two, in the same epoch.
	possible := c.Lag > 1 && before != 0 && before+1 == previous.Step && before >= previous.EpochStart
	if !possible {
		if said != 0 {
			return fmt.Errorf("%w: it says that the result of step %d was given back meanwhile", ErrBreach, said)
		}
		return nil
	}
	i := slices.IndexFunc(c.Heads, func(h Head) bool { return h.Step == before })
	switch {
	case i >= 0 && (said == before) == c.Heads[i].Counted, said != 0 && said != before:
		return fmt.Errorf("%w: it says that step %d was given back meanwhile; step %d was made before", ErrBreach, said, before)
	case said == 0:
		return nil
	}
	h, _, err := c.head(before, e)
	claim.EarlierRoot = h.Root
	return err
}
