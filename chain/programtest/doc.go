// Package programtest compares the C program in chain/program with package coordinator. Its tests
// run the file in the repository on accounts. They also run the rules alone as a process, compiled
// by the machine's compiler with checks for bounds and undefined behaviour. Both execute the same
// operations as Go. After each operation, the results and every byte of the account have to be
// equal.
//
//	go test ./chain/programtest                   a minute
//	go test ./chain/programtest -ops 1000000      a million random operations, another million from
//	                                               states with full lists, and half a million in which
//	                                               members are found late
//	go test ./chain/programtest -run Mutants -mutants -timeout 1h
//	                                               checks that every mutant in the list is found
//
// Tests of the whole program run it in sbpf/runtime. They send every operation through INIT, WRITE,
// GENESIS, ACT and TICK, with a clock and slots, some of them skipped. After each operation, every
// byte of the account must equal Go's result (state, sequence, head, waiting tick, staging area),
// and so must the log. Each refusal of the host has a test, which requires that nothing changed.
//
// The process needs a C compiler that can check bounds and undefined behaviour: cc, or the compiler
// in CC. Without it these tests are skipped, with the reason. All warnings are errors, and nothing
// uses cgo.
//
// Operations come from random walks of a few clients, walks that continue from states with full
// lists and extreme counters, every field of a configuration at every limit, actions truncated at
// each byte, and scripted runs of 256 members with 32 witnesses and 256 grantees of four delegates.
// Go and C must agree on whether a tick is due.
//
// A mutant is a small mistake in the C rules or the host, such as < for <= or a missing line.
// Without -mutants the tests try one in 160 of the rules, and one in twenty of the host.
//
// If sbpf-linker is installed, or SBPF_LINKER names it, a test also links the same sources with it,
// from bitcode and with another version of LLVM. The resulting program must pass the same tests.
//
// TestLiteSVM repeats tests with litesvm: random runs, the run of 256 members in units.md, the
// slots of a draw, the refusals. It is skipped unless LITESVM names a node_modules with litesvm.
// With litesvm 1.5.0, all 23,940 instructions of -litesvm-runs 130 left the same accounts, errors,
// logs and compute units as the interpreter.
//
// Package compile compiles the sources with clang, and package link links clang's output. Tests
// build the program with them, and compare it with the file in the repository.
package programtest
