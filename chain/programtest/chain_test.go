package programtest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// unitLimit is the maximum cost of an instruction, of the 1,400,000 compute units of a transaction.
// A tick that needs more than a transaction has would stop a run forever.
const unitLimit = 600_000

// shareUnitLimit is the maximum cost of an instruction in a run with shares by speed or with lost sequences.
const shareUnitLimit = 1_100_000

var programFile = flag.String("program", "", "the program to test, if not the one in the repository")

func loadProgram(t testing.TB) *sbpf.Program {
	t.Helper()
	elf := program.ELF
	if *programFile != "" {
		b, err := os.ReadFile(*programFile)
		if err != nil {
			t.Fatal(err)
		}
		elf = b
	}
	p, err := sbpf.Load(elf)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// units are the maximum costs of the kinds of instructions.
type units map[string]uint64

// note records a cost. The kind of a tick is its states before and after, the kind of an action is
// its name.
func (u units) note(instruction byte, before, after []byte, o operation, taken uint64) {
	name := instructionNames[instruction]
	switch {
	case instruction == transaction.RunTick:
		from, to := coordinator.RunState(before[12]), coordinator.RunState(after[12])
		name = fmt.Sprintf("TICK %s to %s", from, to)
		if bytes.Equal(before, after) {
			name = "TICK, nothing due"
		} else if bytes.Equal(state(before), state(after)) {
			name = "TICK that arms"
		}
	case instruction == transaction.RunAct && len(o.body) > 0 && int(o.body[0]) < len(actionNames):
		name += " " + actionNames[o.body[0]]
	}
	u[name] = max(u[name], taken)
}

var instructionNames = [...]string{
	transaction.RunInit: "INIT", transaction.RunWrite: "WRITE", transaction.RunGenesis: "GENESIS", transaction.RunAct: "ACT", transaction.RunTick: "TICK",
	transaction.RunFree: "FREE", transaction.RunAnnounce: "ANNOUNCE", transaction.RunForget: "FORGET", transaction.RunMigrate: "MIGRATE",
	transaction.RunGrant: "GRANT", transaction.RunDelegate: "DELEGATE",
}

// shortChainRun is the number of random operations that the interpreter executes. The native rules
// execute more.
const shortChainRun = 1200

// TestChain compares Go with the whole program as it runs on the chain, and checks the costs.
func TestChain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute, and minutes with the race detector, which has nothing to find in C")
	}
	elf := loadProgram(t)
	count := shortChainRun
	if *operations != shortRun {
		count = *operations
	}
	for _, s := range suites(count) {
		t.Run(s.name, func(t *testing.T) {
			d, u := newDeployed(elf), units{}
			d.note = u.note
			r := newPair(d)
			if err := s.run(r); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d operations, all accounts equal", r.operations)
			for _, name := range slices.Sorted(maps.Keys(u)) {
				t.Logf("%8d units: %s", u[name], name)
				if u[name] > unitLimit {
					t.Errorf("%s takes %d units, want at most %d", name, u[name], unitLimit)
				}
			}
		})
	}
}
