package localnet

import (
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
)

// BenchmarkWrite stages bytes in the account of a run, ten times a slot.
func BenchmarkWrite(b *testing.B) {
	c := newChain(b, Config{})
	runs := transaction.Program{1}
	if err := c.SetProgram(transaction.PublicKey(runs), program.ELF); err != nil {
		b.Fatal(err)
	}
	run, err := runs.RunAddress(public(c.payer), "run")
	if err != nil {
		b.Fatal(err)
	}
	create, err := transaction.CreateAccountWithSeed(public(c.payer), public(c.payer), "run", 10*sol, layout.AccountSize, transaction.PublicKey(runs))
	if err != nil {
		b.Fatal(err)
	}
	if got := c.send(create, runs.Init(run, public(c.payer))); got != "" {
		b.Fatal(got)
	}
	n := uint64(0)
	for b.Loop() {
		n++
		raw := c.sign([]identity.Key{c.payer}, runs.Write(run, public(c.payer), 0, le.AppendUint64(make([]byte, 900), n)))
		if r, err := c.submit(raw); err != nil || r.Err != nil {
			b.Fatal(err, r)
		}
		if n%10 == 0 {
			c.next()
		}
	}
	b.ReportMetric(float64(len(c.state[run])), "versions")
}
