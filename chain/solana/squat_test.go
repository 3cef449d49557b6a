package solana

import (
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestSquatters sends lamports to the addresses of a run and of a participant's account before they
// are created, less than the rent and more. It checks that both can still be created.
func TestSquatters(t *testing.T) {
	for name, sent := range map[string]uint64{"a little": 890_880, "more than the rent": 5_000_000_000} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, 1, 10*time.Millisecond, nil)
			program, key := transaction.Program(c.program), backendtest.Key(1)
			main := transaction.PublicKey(mainKey().ID())
			run, err := program.RunAddress(main, smallGenesis().RunID)
			if err != nil {
				t.Fatal(err)
			}
			peer, err := program.PeerAddress(transaction.PublicKey(key.ID()), run)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []transaction.PublicKey{run, peer} {
				if _, err := c.ledger.Airdrop(at, sent); err != nil {
					t.Fatal(err)
				}
			}
			for c.ledger.At(localnet.Confirmed, 0).Account(peer) == nil {
				time.Sleep(time.Millisecond)
			}
			if got := c.create(smallGenesis()); got != run {
				t.Fatalf("run %s, want %s", got, run)
			}
			joined, err := c.join(t.Context(), key, run)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = joined.Close() }()
			addrs := []string{"/ip4/203.0.113.7/tcp/4001"}
			if err := joined.Announce(t.Context(), addrs); err != nil {
				t.Fatal(err)
			}
			if err := joined.Submit(t.Context(), coordinator.Join{}); err != nil {
				t.Fatal(err)
			}
			await(t, joined, "the addresses", func(u backend.Update) bool {
				return len(u.Peers) == 1 && slices.Equal(u.Peers[0].Addrs, addrs)
			})
			c.checkRent(run, layout.AccountSize, sent)
			c.checkRent(peer, layout.PeerSize, sent)
		})
	}
}

// checkRent checks that an account has its rent, and not more than that unless lamports were sent
// to it.
func (c *chain) checkRent(key transaction.PublicKey, size int, sent uint64) {
	c.t.Helper()
	want := max(sent, uint64(size+128)*rentPerByte)
	if a := c.ledger.At(localnet.Processed, 0).Account(key); a.Owner != c.program || a.Lamports != want {
		c.t.Errorf("account %s is of %s and has %d lamports, want %d", key, a.Owner, a.Lamports, want)
	}
}
