package history

// MakeRounds returns n rounds of one batch each.
func MakeRounds(n uint32) *Rounds {
	r := &Rounds{}
	for step := range n {
		r.add(Stretch{First: step + 1, Rounds: 1, Batches: 1, Counted: 1})
	}
	return r
}
