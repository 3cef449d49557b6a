// Command step measures a training step (forward, backward) of a Llama against the same
// network in eager PyTorch, reference.py.
//
// Each side is a process of its own. They take turns, one step each, so that whatever else
// the machine does hits all alike; what counts are the medians of the ratios within a
// round. PyTorch runs twice: as it is installed, and with the BLAS, thread and allocator
// settings that package torch makes for itself.
//
// `make bench-step` prints a table; README.md tells its columns.
package main
