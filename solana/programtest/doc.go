// Package programtest compares the rules in solana/program, which are C, with those of package
// coordinator. Its tests compile the C with the machine's compiler, bounds and undefined
// behaviour checked, run it as a process, and drive both with the same operations: what each of
// them answers and every byte of the account have to be equal after each one.
//
//	go test ./solana/programtest                   a few seconds
//	go test ./solana/programtest -ops 1000000      as many random operations
//	go test ./solana/programtest -run Mutants -mutants
//	                                               every small mistake in the C is found
package programtest
