// Package weighted mixes the sequences of several sources.
//
// New makes a Mix of sources and their weights; Mix.At says which sequence of which source
// comes at an index of the run, and Mix.Read reads them. Weights are rounded to whole
// shares (Shares) of a cycle of at most MaxCycle sequences: in every cycle each source
// comes exactly as often as its shares say. Everything is integers computed from the
// index, with tables as long as a cycle, not as the data: all clients of a run mix alike,
// and any index can be asked for at once.
//
// Within a cycle the sources are spread evenly: the next sequence is always of the source
// that is furthest behind its weight (the lower index when several are), as in error
// diffusion. A seed puts each cycle into an order of its own. The sequences of a source
// come in the source's own order, each once, and begin anew when they are used up; what
// order a further pass has is the source's affair.
package weighted
