package admin

import (
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/chain/transaction"
)

// LamportsPerSOL is the number of lamports in one SOL.
const LamportsPerSOL = 1_000_000_000

// Cost is the cost of a planned operation, in lamports.
type Cost struct {
	Rent         uint64 // deposit in accounts, returned when they are closed
	Fees         uint64 // of the transactions, without priority fees
	Transactions int
}

// Total returns the balance that the payer needs.
func (c Cost) Total() uint64 { return c.Rent + c.Fees }

// String formats the cost for people.
func (c Cost) String() string {
	noun := "transactions"
	if c.Transactions == 1 {
		noun = "transaction"
	}
	if c.Rent == 0 {
		return fmt.Sprintf("%s SOL for %d %s", SOL(c.Fees), c.Transactions, noun)
	}
	return fmt.Sprintf("%s SOL: %s for accounts, which is refunded when they are closed, and %s for %d %s",
		SOL(c.Total()), SOL(c.Rent), SOL(c.Fees), c.Transactions, noun)
}

// Transactions returns the cost of n transactions with one signature each.
func Transactions(n int) Cost {
	return Cost{Fees: uint64(n) * transaction.SignatureFee, Transactions: n}
}

// SOL formats lamports as SOL, exactly.
func SOL(lamports uint64) string {
	whole, rest := lamports/LamportsPerSOL, lamports%LamportsPerSOL
	if rest == 0 {
		return fmt.Sprint(whole)
	}
	return fmt.Sprintf("%d.%s", whole, strings.TrimRight(fmt.Sprintf("%09d", rest), "0"))
}

// ParseSOL parses an amount of SOL, exactly.
func ParseSOL(text string) (uint64, error) {
	bad := fmt.Errorf("%q SOL, want a number above 0 with at most 9 decimals, such as 1.5", text)
	whole, places, _ := strings.Cut(text, ".")
	if len(whole) == 0 || len(whole) > 9 || len(places) > 9 {
		return 0, bad
	}
	var lamports uint64
	for _, digit := range whole + places + strings.Repeat("0", 9-len(places)) {
		if digit < '0' || digit > '9' {
			return 0, bad
		}
		lamports = lamports*10 + uint64(digit-'0')
	}
	if lamports == 0 {
		return 0, bad
	}
	return lamports, nil
}
