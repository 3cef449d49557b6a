// Package momenta is what trainers of a run have for themselves, without a process or a replica
// each: their momenta. Their gradients come from replicas that others hold, by
// train.Trainer.Recompute; the optimizer around them is that of distro, and what they open is what
// audit checks. Attacks are trainers that do all by the rules but add something else than their
// gradient.
//
// Benchmarks use it: proof/bench/audit, where gradients come from processes with different libraries, and
// proof/bench/parity, where many trainers share one replica.
package momenta
