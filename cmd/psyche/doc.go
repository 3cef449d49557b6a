// Command psyche hosts and prepares training runs: the server of a run, its administration
// and audit, data sets, keys, local test networks and the simulator. It needs no libtorch and no cgo; what trains is
// psyche-client.
//
// Every command is a struct of flags with a Run method, in a file of its own; main.go
// lists them.
//
// Exit codes: 0 the command did what was asked, also when a server was stopped by a
// signal; 1 it failed; 2 the command line is wrong; 3 a configuration file is wrong; 4 the
// run's rules or its server refused; 5 the server cannot be reached, or has another key
// than it should; 6 the log of a run does not verify; 8 the run of a testnet is over, and not
// every client has its final model, or the run recorded none; 9 the clients of a testnet ended
// with different models; 130 a signal interrupted it.
package main
