// Package runtime runs a program of the chain on accounts as the chain's runtime does: it lays the
// accounts out as the loader does, answers the system calls that see the chain (clock, hashes of
// slots, logs), and takes over what the program did only when no rule is broken: nobody but the
// owner changes data or takes lamports, nothing that is read-only changes, no lamport appears or
// is lost.
//
//	program, err := sbpf.Load(elf)
//	result, err := runtime.Invoke(program, sysvars, id, accounts, data, 200_000)
//
// Programs cannot call other programs: such system calls do not exist here.
package runtime
