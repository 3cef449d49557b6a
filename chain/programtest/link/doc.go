// Package link implements a linker for programs of the chain. Its input is a C compiler's output
// for BPF. It arranges the sections of objects as the chain's loader for SBPF version 3 requires,
// and replaces symbols with addresses and numbers of system calls.
//
//	program, err := link.Link(objects)
//
// It rejects objects that would load and then fail: unknown system calls, variables, and
// instructions whose meaning differs between the chain and the compiler.
package link
