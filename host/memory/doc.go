// Package memory implements a backend within one process, for tests. It has no sockets and no disk,
// and the test drives its clock.
//
// The main type is Host, which holds a coordinator's state and acts as the server. Attach returns a
// Client for each participant. The host ticks after every action. A test that moves the clock calls
// tick, or lets Run do so. Actions are signed, encoded and opened as on the network. The host
// withdraws a Client as soon as it is closed: its grace period is zero.
package memory
