// Package sbpf runs programs of the chain: SBPF of version 3 as the chain's loader takes
// it, with bounds-checked memory, the system calls that the coordinator needs, and compute units
// counted as the chain counts them.
//
//	program, err := sbpf.Load(elf)
//	machine := sbpf.NewMachine(program, 1_400_000)
//	result, err := machine.Run(input)
//	units := machine.Units()
package sbpf
