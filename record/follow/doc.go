// Package follow implements a light client that verifies the host of a run. It reads the records of
// the run's log, verifies their signatures, and executes each record again.
//
// The main type is Follower. It starts from the Genesis of a run, whose hash identifies the run in
// all signed messages. Apply executes the next record. A record that does not verify, that the
// rules refuse, or that changes nothing proves that the host is dishonest (HostFault): an honest host
// never writes such a record.
//
//	f, err := follow.Begin(genesis)
//	record, err := f.Apply(payload)
//	f.Head() // the number of records, and the hash of their chain
//
// The host signs heads of its log (wire.Head). Two heads that contradict each other are also a HostFault.
// The package has no side effects: it turns bytes into a state.
package follow
