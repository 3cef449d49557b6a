// Package testnet runs a complete training network on one machine: a server and several client
// processes over loopback, with a progress display, scripted faults and a final summary.
//
// Run performs all steps in order. It verifies that all files exist (check.go), starts the
// processes (process.go), follows their event logs (progress.go), kills and restarts some of them
// if requested (faults.go), and measures and reports the results (summary.go, plot.go).
// Options.Resume continues a run that ended early (resume.go). The package does not train and needs
// no libtorch.
package testnet
