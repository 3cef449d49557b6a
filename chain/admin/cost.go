package admin

import (
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/chain/transaction"
)

// LamportsPerSOL is how many lamports are one SOL.
const LamportsPerSOL = 1_000_000_000

// Cost is what something costs that is not done yet, in lamports.
type Cost struct {
	Rent         uint64 // that lies in accounts, and comes back when they are closed
	Fees         uint64 // of the transactions, without what is offered for being faster
	Transactions int
}

// Total returns all that the payer has to have.
func (c Cost) Total() uint64 { return c.Rent + c.Fees }

// String returns the cost for people.
func (c Cost) String() string {
	noun := "transactions"
	if c.Transactions == 1 {
		noun = "transaction"
	}
	if c.Rent == 0 {
		return fmt.Sprintf("%s SOL for %d %s", SOL(c.Fees), c.Transactions, noun)
	}
	return fmt.Sprintf("%s SOL: %s for accounts, which come back when they are closed, and %s for %d %s",
		SOL(c.Total()), SOL(c.Rent), SOL(c.Fees), c.Transactions, noun)
}

// Transactions returns the cost of so many transactions that one key signs.
func Transactions(n int) Cost {
	return Cost{Fees: uint64(n) * transaction.SignatureFee, Transactions: n}
}

// SOL writes lamports as SOL, exactly.
func SOL(lamports uint64) string {
	whole, rest := lamports/LamportsPerSOL, lamports%LamportsPerSOL
	if rest == 0 {
		return fmt.Sprint(whole)
	}
	return fmt.Sprintf("%d.%s", whole, strings.TrimRight(fmt.Sprintf("%09d", rest), "0"))
}

// ParseSOL reads an amount of SOL, exactly.
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
