// Command distro measures the cost of the DisTrO optimizer.
//
//	go run ./proof/bench/distro
//
// It compares encoding and decoding with the same work as a composition of PyTorch operations
// (reference.py, like the published implementation), with the minimum memory bandwidth of the work,
// and with a training step. It also compares the size of real results with the published format and
// with the entropy bound. The two sides of a ratio take turns in one process group, so that other
// load on the machine slows both.
package main
