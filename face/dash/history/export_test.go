package history

// Limits of a history, and reasons why a member left.
const (
	MaxMembers   = maxMembers
	MaxStretches = maxStretches
	MaxTrials    = maxTrials
	WhyEjected   = whyEjected
	WhyWitnesses = whyWitnesses
)

// MakeRounds returns n rounds of one batch each.
func MakeRounds(n uint32) *Rounds {
	r := &Rounds{}
	for step := range n {
		r.add(Stretch{First: step + 1, Rounds: 1, Batches: 1, Counted: 1})
	}
	return r
}
