// Package programtest compares the program in chain/program, which is C, with package coordinator.
// Its tests run the file in the repository on accounts, and the rules alone as a process that the
// machine's compiler made, bounds and undefined behaviour checked. Both are driven with the same
// operations as Go: what each of them answers and every byte of the account have to be equal after
// each one.
//
//	go test ./chain/programtest                   a minute
//	go test ./chain/programtest -ops 1000000      as many random operations
//	go test ./chain/programtest -run Mutants -mutants
//	                                               every small mistake in the C is found
package programtest
