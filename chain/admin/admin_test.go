package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
)

// open returns a new chain, and a client of it with the n-th key.
func open(t *testing.T, n byte) (*Chain, *localnet.Endpoint, *localnet.Ledger) {
	t.Helper()
	ledger := localnet.NewLedger(localnet.Config{Start: time.Now(), Seed: uint64(n)})
	server := localnet.NewServer(ledger, localnet.Options{Slot: 10 * time.Millisecond})
	endpoint := server.Endpoint()
	web := httptest.NewServer(endpoint)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	address, err := rpc.ParseEndpoint(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(solana.Options{
		Endpoints: []rpc.Address{address}, Key: identity.FromSeed([identity.SeedSize]byte{n}),
		Pace: solana.Pace{Status: 20 * time.Millisecond, Resend: 200 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		stop()
		running.Wait()
		web.CloseClientConnections()
		web.Close()
	})
	return c, endpoint, ledger
}

// TestDeployGoesOn interrupts a deployment, finishes it, and then replaces the program.
func TestDeployGoesOn(t *testing.T) {
	c, endpoint, _ := open(t, 1)
	plan, err := c.PlanDeploy(t.Context(), program.ELF)
	if err != nil {
		t.Fatal(err)
	}
	whole, total := plan.Pieces(), plan.Cost.Total()
	err = c.Deploy(t.Context(), plan, nil)
	if !errors.Is(err, ErrNoFunds) {
		t.Fatalf("deploy without funds: %v", err)
	}
	golden.Message(t, "without funds", err)
	if err := c.Airdrop(t.Context(), c.Payer(), 2*LamportsPerSOL); err != nil {
		t.Fatal(err)
	}
	endpoint.SetFaults(localnet.Faults{Lost: 0.2})
	ctx, stop := context.WithCancel(t.Context())
	written := 0
	err = c.Deploy(ctx, plan, func() {
		if written++; written == whole/2 {
			stop()
		}
	})
	if err == nil {
		t.Fatal("an interrupted deployment succeeded")
	}
	if plan, err = c.PlanDeploy(t.Context(), program.ELF); err != nil || plan.Pieces() >= whole || plan.Done() {
		t.Fatalf("%d of %d pieces are left, %v", plan.Pieces(), whole, err)
	}
	if err := c.Deploy(t.Context(), plan, nil); err != nil {
		t.Fatal(err)
	}
	endpoint.SetFaults(localnet.Faults{})
	left, err := c.Balance(t.Context(), c.Payer())
	// Pieces that landed without being noticed may have been written twice.
	if paid := 2*LamportsPerSOL - left; err != nil || paid < total || paid > total+uint64(whole)*transaction.SignatureFee {
		t.Errorf("paid %d, planned %d, %v", paid, total, err)
	}
	if plan, err = c.PlanDeploy(t.Context(), program.ELF); err != nil || !plan.Done() || plan.Cost.Total() != 0 {
		t.Fatalf("done: %+v, %v", plan.Cost, err)
	}

	other, err := os.ReadFile("../sbpf/runtime/testdata/probe.so")
	if err != nil {
		t.Fatal(err)
	}
	if owner, err := c.Vouch(t.Context(), plan.Program, program.ELF); err != nil || owner != c.Payer() {
		t.Fatalf("the program is vouched for with the key %s, %v", owner, err)
	}
	plan, err = c.PlanDeploy(t.Context(), other)
	if err != nil || plan.Done() || !plan.Upgrade {
		t.Fatalf("a different image: %v", err)
	}
	if err := c.Deploy(t.Context(), plan, nil); err != nil {
		t.Fatal(err)
	}
	if plan, err = c.PlanDeploy(t.Context(), other); err != nil || !plan.Done() {
		t.Fatalf("a different image is not deployed: %v", err)
	}
	if err := errors.Join(c.Finalize(t.Context()), c.Finalize(t.Context())); err != nil {
		t.Fatalf("give up the right to change the program: %v", err)
	}
	if _, err = c.PlanDeploy(t.Context(), program.ELF); !errors.Is(err, ErrTaken) {
		t.Fatalf("replace a program that is final: %v", err)
	}
	if _, err := c.Vouch(t.Context(), plan.Program, program.ELF); !errors.Is(err, ErrForeign) {
		t.Fatalf("vouch for a different image: %v", err)
	}
	if owner, err := c.Vouch(t.Context(), plan.Program, other); err != nil || owner != (transaction.PublicKey{}) {
		t.Fatalf("a final program is vouched for with the key %s, %v", owner, err)
	}
}

// TestTakenProgram checks that a foreign account at the address of the program is an error.
func TestTakenProgram(t *testing.T) {
	c, _, ledger := open(t, 2)
	at, err := ProgramOf(c.Payer())
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile("../sbpf/runtime/testdata/probe.so")
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.SetProgram(at, other); err != nil { // the program cannot be changed
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // until it is confirmed
	_, err = c.PlanDeploy(t.Context(), program.ELF)
	if !errors.Is(err, ErrTaken) {
		t.Errorf("a program that is final: %v", err)
	}
	golden.Message(t, "a program that is final", err)
	ledger.SetAccount(at, &localnet.Account{Owner: transaction.ComputeBudgetProgram, Lamports: LamportsPerSOL})
	time.Sleep(50 * time.Millisecond) // until it is confirmed
	if _, err := c.PlanDeploy(t.Context(), program.ELF); !errors.Is(err, ErrTaken) {
		t.Errorf("an account of a different owner: %v", err)
	}
	if err := c.CheckProgram(t.Context(), at); !errors.Is(err, ErrNoProgram) {
		t.Errorf("check of an account without a program: %v", err)
	}
}

// TestSquatters sends lamports to addresses at which accounts will be created. This must not
// prevent the creation, except of the account for a program's image, which the chain's loader
// creates.
func TestSquatters(t *testing.T) {
	c, _, ledger := open(t, 4)
	if err := c.Airdrop(t.Context(), c.Payer(), 4*LamportsPerSOL); err != nil {
		t.Fatal(err)
	}
	at, err := ProgramOf(c.Payer())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.PlanDeploy(t.Context(), program.ELF)
	if err != nil {
		t.Fatal(err)
	}
	run, err := transaction.Program(at).RunAddress(c.Payer(), "squatted")
	if err != nil {
		t.Fatal(err)
	}
	before := plan.Cost.Rent
	for _, target := range []transaction.PublicKey{at, plan.buffer, run} {
		if err := c.Airdrop(t.Context(), target, LamportsPerSOL/4); err != nil {
			t.Fatal(err)
		}
	}
	if plan, err = c.PlanDeploy(t.Context(), program.ELF); err != nil || plan.Cost.Rent >= before {
		t.Fatalf("rent of %d, %d before, %v", plan.Cost.Rent, before, err)
	}
	if err := c.Deploy(t.Context(), plan, nil); err != nil {
		t.Fatal(err)
	}
	creation, err := c.PlanCreate(t.Context(), at, "squatted", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), creation); err != nil {
		t.Fatal(err)
	}
	if a := ledger.At(localnet.Confirmed, 0).Account(run); a.Owner != at || a.Lamports != creation.Cost.Rent {
		t.Errorf("the run's account is of %s and has %d lamports", a.Owner, a.Lamports)
	}

	c, _, _ = open(t, 5)
	if at, err = ProgramOf(c.Payer()); err != nil {
		t.Fatal(err)
	}
	if at, err = transaction.ProgramData(at); err != nil {
		t.Fatal(err)
	}
	if err := c.Airdrop(t.Context(), at, LamportsPerSOL/4); err != nil {
		t.Fatal(err)
	}
	_, err = c.PlanDeploy(t.Context(), program.ELF)
	if !errors.Is(err, ErrTaken) {
		t.Errorf("error %v", err)
	}
	golden.Message(t, "program data that is taken", err)
}

// TestRentThatCannotBe checks that an invalid rent that a node reports is not paid.
func TestRentThatCannotBe(t *testing.T) {
	c, endpoint, _ := open(t, 3)
	endpoint.SetFaults(localnet.Faults{Falsify: func(method string, result json.RawMessage) json.RawMessage {
		if method == "getMinimumBalanceForRentExemption" {
			return json.RawMessage("900000000000")
		}
		return result
	}})
	_, err := c.PlanDeploy(t.Context(), program.ELF)
	golden.Message(t, "error", err)
}

func TestSOL(t *testing.T) {
	for lamports, want := range map[uint64]string{0: "0", 1: "0.000000001", 5000: "0.000005", LamportsPerSOL: "1", 1_957_152_000: "1.957152"} {
		if got := SOL(lamports); got != want {
			t.Errorf("%d lamports: %s, want %s", lamports, got, want)
		}
	}
	for _, wrong := range []string{"", "0", "0.0", "-1", "1.2345678901", "1e9", " 1", "1 ", ".5", "9999999999", "1.-5", "+1"} {
		if got, err := ParseSOL(wrong); err == nil {
			t.Errorf("%q is %d", wrong, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		lamports := rapid.Uint64Range(1, 999_999_999*LamportsPerSOL).Draw(t, "lamports")
		if got, err := ParseSOL(SOL(lamports)); err != nil || got != lamports {
			t.Fatalf("%d lamports: %d, %v", lamports, got, err)
		}
	})
}
