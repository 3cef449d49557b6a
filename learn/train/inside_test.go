package train

// distro returns the exchange of a trainer of DisTrO.
func (t *Trainer) distro() *distroExchange { return t.exchange.(*distroExchange) }

// local returns the exchange of a trainer of local steps.
func (t *Trainer) local() *localExchange { return t.exchange.(*localExchange) }

// replays returns the examiner of a trainer of local steps.
func (t *Trainer) replays() *replayer { return t.examiner.(*replayer) }

// stepsKept returns how many local steps of an interrupted replay are done.
func stepsKept(t *Trainer) int {
	if t.keeper.kept == nil {
		return 0
	}
	return t.keeper.kept.state.(*replay).next
}

// momentumOf returns the momentum of an optimizer in the memory of the CPU.
func momentumOf(o *optimizer) [][]float32 {
	values, err := o.momentum.read()
	if err != nil {
		panic(err)
	}
	return values
}

// unsentOf returns the residual of a trainer of local steps in the memory of the CPU.
func unsentOf(t *Trainer) [][]float32 {
	values, err := t.local().residual.unsent.read()
	if err != nil {
		panic(err)
	}
	return values
}
