// Package archive stores the history of a run on a chain in a file, so that the run can be replayed
// after the chain's nodes have forgotten it.
//
//	a, err := archive.Open(path, archive.Header{Program: program, Run: address, Genesis: genesis})
//	added, err := fetch.Into(ctx, a, endpoint, rpc.Finalized)
//	state, summary, err := archive.Replay(path, nil)
//
// The file is a journal (package record/journal). It contains a header, and then every transaction
// that changed the run, with its signatures and the events that it logged. Events are not signed.
// But each event contains the head of a hash chain over all earlier events. If an archive's last
// head equals the head in the run's account, the archive is complete and unmodified.
package archive
