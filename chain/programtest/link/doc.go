// Package link makes a program of the chain of what a C compiler makes for BPF: it lays the
// sections of objects out as the chain's loader of SBPF version 3 wants them, and puts addresses
// and the numbers of system calls where the objects name symbols.
//
//	program, err := link.Link(objects)
//
// It refuses what would load and then fail: names that are no system call, variables, and
// instructions that mean something else on the chain than to the compiler.
package link
