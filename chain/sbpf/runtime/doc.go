// Package runtime executes a program on accounts as the chain's runtime does. It serializes the
// accounts as the loader does, and provides the system calls that access the chain (clock, hashes
// of slots, logs). It commits the program's changes only if they break no rule: only the owner
// changes data or takes lamports, read-only accounts do not change, and the sum of lamports stays
// the same.
//
//	program, err := sbpf.Load(elf)
//	result, err := runtime.Invoke(program, sysvars, id, accounts, data, 200_000)
//
// Programs cannot call other programs: the system calls for it are not implemented.
package runtime
