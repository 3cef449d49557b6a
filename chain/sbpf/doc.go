// Package sbpf implements an interpreter for SBPF version 3, the instruction set of programs on the
// chain. It loads files as the chain's loader does, checks all memory accesses, provides the system
// calls that the coordinator needs, and counts compute units as the chain does.
//
//	program, err := sbpf.Load(elf)
//	machine := sbpf.NewMachine(program, 1_400_000)
//	result, err := machine.Run(input)
//	units := machine.Units()
package sbpf
