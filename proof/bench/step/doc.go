// Command step measures a training step (forward, backward) of a Llama against the same network in
// eager PyTorch, reference.py.
//
// Each side is a separate process. The processes take turns, one step each, so that other load on
// the machine affects all alike. The results are medians of the ratios within a round. PyTorch runs
// twice: as installed, and with the BLAS, thread and allocator settings that package torch makes
// for itself.
//
// `make bench-step` prints a table. README.md explains its columns.
package main
