// Package testnet runs a whole training network on one machine: a server and several
// clients as processes of their own, over loopback, with a progress display, scripted
// faults and a summary at the end.
//
// Run does everything in order: check that all files are there (check.go), start the
// processes (process.go), follow the event logs that they write (progress.go), kill and
// restart some of them if asked to (faults.go), and measure and tell what came of it
// (summary.go, plot.go). A run that ended before its time goes on with Options.Resume
// (resume.go). It trains nothing itself and needs no libtorch.
package testnet
