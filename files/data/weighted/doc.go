// Package weighted mixes the sequences of several sources by weight.
//
// New makes a Mix from sources and their shares. Mix.At returns the source and the sequence of an
// index of the run, and Mix.Read reads sequences.
//
//	shares, err := weighted.Shares([]string{"0.7", "0.3"}) // 7 and 3
//	mix, err := weighted.New(sources, shares, nil)
//	source, sequence := mix.At(index)
//
// Shares and SharesOf round weights to whole shares of a cycle of at most maxCycle sequences. In
// every cycle, a source has exactly as many sequences as its shares. All values are integers,
// computed from the index, with tables of the size of a cycle and not of the data. All clients of a
// run therefore mix the same way, and can compute any index directly.
//
// Within a cycle, sources are spread evenly: the next sequence always comes from the source that is
// furthest behind its weight (the lower index in a tie), as in error diffusion. A seed gives each
// cycle a different order. The sequences of a source come in the order of the source, each once,
// and start again after the last one. The source determines the order of further passes.
package weighted
