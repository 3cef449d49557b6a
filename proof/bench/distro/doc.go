// Command distro measures what the DisTrO optimizer costs.
//
//	go run ./proof/bench/distro
//
// It compares encoding and decoding with the same work as a composition of PyTorch
// operations (reference.py, the way in which the published implementation does it), with
// the memory bandwidth that the work needs at least, and with a training step; and the
// bytes of real results with the published format and with the entropy bound. The two
// sides of a ratio take turns in one process group, so that a busy machine slows both.
package main
