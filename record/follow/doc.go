// Package follow checks the host of a run, as a light client of it: it takes the records of the run's
// log, verifies the signatures, and does again what each record did.
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
