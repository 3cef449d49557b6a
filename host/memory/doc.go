// Package memory is a backend in one process, for tests: no sockets, no disk, a clock that
// the test drives.
//
// The main type is Host, which holds a coordinator's state and plays the server; Attach
// gives each participant its Client. After every action the host ticks; besides, a test
// calls Tick when it has moved its clock, or lets Run do so. Actions are signed, encoded
// and opened as on the network. A Client that is closed is withdrawn at once: the grace
// period of this host is zero.
package memory
