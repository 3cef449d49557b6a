package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// sayCost prints the cost of an action on a chain, unless the run would refuse it. It returns an
// error if the key cannot pay.
func (f actFlags) sayCost(ctx context.Context, to console, wanted asked) error {
	state := wanted.state.Clone()
	if state.Apply(wanted.from, math.MaxUint64, wanted.action) != nil {
		return nil // Submit reports the reason, at no cost
	}
	n := 1
	if _, large := wanted.action.(coordinator.UpdateConfig); large {
		n += (len(wire.AppendAction(nil, wanted.action)) - 1 + transaction.MaxRunWrite - 1) / transaction.MaxRunWrite
	}
	cost := admin.Transactions(n)
	if _, err := fmt.Fprintf(to.err, "psyche: this costs %s\n", cost); err != nil {
		return err
	}
	chain, err := f.open(to.err)
	if err != nil {
		return err
	}
	defer chain.Close()
	return chain.Need(ctx, cost)
}

// awaitFinal waits until the change on the chain is final, and prints its cost.
func (f actFlags) awaitFinal(ctx context.Context, to console, c *solana.Client) error {
	costs := c.Costs()
	if _, err := fmt.Fprintf(to.err, "psyche: paid %s SOL for %s\n", admin.SOL(costs.Lamports), count(uint64(costs.Landed), "transaction")); err != nil {
		return err
	}
	if f.Commitment != "finalized" {
		return nil
	}
	chain, err := f.open(to.err)
	if err != nil {
		return err
	}
	defer chain.Close()
	return chain.AwaitFinal(ctx, c.Run())
}

// open returns the chain of the run for the signing key.
func (f actFlags) open(errs io.Writer) (*admin.Chain, error) {
	key, err := f.key(true)
	if err != nil {
		return nil, err
	}
	o, err := f.chain(key, errs)
	if err != nil {
		return nil, err
	}
	return admin.Open(o)
}

// agreeFlags let a script pay without confirmation.
type agreeFlags struct {
	Yes bool `help:"On a chain: pay without asking."`
}

// errNobody means that there is no terminal to confirm a cost.
var errNobody = usagef("the payment needs confirmation, but there is no terminal: give --yes")

// agree shows a cost and asks the user to confirm it.
func (f agreeFlags) agree(to console, subject string, cost admin.Cost) error {
	if _, err := fmt.Fprintf(to.err, "psyche: %s costs %s\n", subject, cost); err != nil {
		return err
	}
	if f.Yes || cost.Total() == 0 {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return errNobody
	}
	if _, err := fmt.Fprint(to.err, "Pay? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(os.Stdin, 64)).ReadString('\n')
	if err != nil && answer == "" {
		return errNobody
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("canceled: nothing was paid or changed")
}

// checkRunID rejects ids that are too long for an address.
func checkRunID(runID string) error {
	if len(runID) > layout.MaxRunIDLength {
		return usagef("--run-id has %d bytes, the limit on a chain is %d", len(runID), layout.MaxRunIDLength)
	}
	return nil
}

// count formats a number of things.
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
