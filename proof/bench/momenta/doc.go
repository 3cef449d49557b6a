// Package momenta simulates many trainers of a run without a process or a replica for each. It
// implements their individual state, the momenta. Gradients come from shared replicas, through
// train.Trainer.Recompute. The optimizer is from package distro, and openings satisfy package
// audit. Attacks are trainers that follow all rules except that they add something other than their
// gradient.
//
// Benchmarks use it: proof/bench/audit, where gradients come from processes with different
// libraries, and proof/bench/parity, where many trainers share one replica.
package momenta
