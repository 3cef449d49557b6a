// Package follow is what anybody does who does not believe the host of a run: it takes the records
// of the run's log, verifies what is signed, and does again what each of them did.
//
// The main type is Follower. It begins with the Genesis of a run, whose hash names the run in
// everything that is signed; Apply takes the next record. A record that does not verify, that the
// rules refuse, or that changes nothing is a Lie of the host: an honest one never writes it.
//
//	f, err := follow.Begin(genesis)
//	record, err := f.Apply(payload)
//	f.Head() // how many records there were, and the hash of their chain
//
// The host signs heads of its log (wire.Head). Two that contradict each other are a Lie as well.
// Everything here is pure: bytes in, a state out.
package follow
