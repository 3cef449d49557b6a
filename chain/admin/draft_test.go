package admin

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
)

// openDeployed returns a chain with the program.
func openDeployed(t *testing.T) (*Chain, transaction.PublicKey) {
	t.Helper()
	c, _, _ := open(t, 6)
	if err := c.Airdrop(t.Context(), c.Payer(), 4*LamportsPerSOL); err != nil {
		t.Fatal(err)
	}
	deployment, err := c.PlanDeploy(t.Context(), program.ELF)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Deploy(t.Context(), deployment, nil); err != nil {
		t.Fatal(err)
	}
	return c, deployment.Program
}

// TestDraft stores a draft, replaces it, and detects that an unfinished long genesis damaged it.
func TestDraft(t *testing.T) {
	c, at := openDeployed(t)
	create := func(draft *layout.Draft, transactions int) *Creation {
		t.Helper()
		plan, err := c.PlanCreate(t.Context(), at, "run", nil, draft)
		if err != nil || plan.Cost.Transactions != transactions {
			t.Fatalf("%d transactions, want %d; %v", plan.Cost.Transactions, transactions, err)
		}
		if err := c.Create(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	stored := func(want layout.Draft, there bool) {
		t.Helper()
		if got, found, err := c.Draft(t.Context(), at, "run"); got != want || found != there || err != nil {
			t.Errorf("draft %+v, %t, %v; want %+v", got, found, err, want)
		}
		if all, err := c.Unconfigured(t.Context(), at, "run"); err != nil || len(all) != 1 || all[0].Draft != want || all[0].Main != c.Payer() {
			t.Errorf("unconfigured: %+v, %v", all, err)
		}
	}
	if _, found, err := c.Draft(t.Context(), at, "run"); found || err != nil {
		t.Errorf("draft without an account: %t, %v", found, err)
	}
	create(nil, 1)
	stored(layout.Draft{}, false)
	create(nil, 0)
	first, second := layout.Draft{Name: "a long name", Permissioned: true}, layout.Draft{Name: "short"}
	create(&first, 1)
	stored(first, true)
	run := create(&second, 1).Run
	stored(second, true)
	if found, err := c.Unconfigured(t.Context(), at, "other"); err != nil || len(found) != 0 {
		t.Errorf("of a different ID: %+v, %v", found, err)
	}
	if _, err := c.Find(t.Context(), at, "run", transaction.PublicKey{}); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("find: %v", err)
	}

	piece := transaction.Program(at).Write(run, c.Payer(), layout.DraftOffset, []byte("genesis"))
	if err := c.operator.Send(t.Context(), "damage", wholeUnits, piece); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Draft(t.Context(), at, "run"); !errors.Is(err, layout.ErrDraft) {
		t.Errorf("a damaged draft: %v", err)
	}
	if all, err := c.Unconfigured(t.Context(), at, "run"); err != nil || len(all) != 1 || all[0].Draft != (layout.Draft{}) {
		t.Errorf("unconfigured with a damaged draft: %+v, %v", all, err)
	}
}
