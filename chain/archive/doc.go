// Package archive keeps what happened to a run on a chain in a file, so that anybody can do it
// again: nodes of a chain forget.
//
//	a, err := archive.Open(path, archive.Header{Program: program, Run: address, Genesis: genesis})
//	added, err := fetch.Into(ctx, a, endpoint, rpc.Finalized)
//	state, summary, err := archive.Replay(path, nil)
//
// The file is a journal (package record/journal): a header, then every transaction that changed
// the run, as it was signed, with the events that it logged. Nobody signs events; but each has
// the head of a chain of hashes over all before it, so that an archive whose last head is that of
// the run's account has everything, unchanged.
package archive
