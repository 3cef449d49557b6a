package localnet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

const sol = 1_000_000_000

var began = time.Unix(1_800_000_000, 0)

// chain is a ledger with a test and a payer.
type chain struct {
	testing.TB
	*Ledger
	payer identity.Key
}

func newChain(t testing.TB, c Config) *chain {
	c.Start = began
	k := &chain{TB: t, Ledger: NewLedger(c), payer: keyOf("payer")}
	k.drop(k.payer, 1000*sol)
	return k
}

// keyOf returns a key made from a name.
func keyOf(name string) identity.Key { return identity.FromSeed(sha256.Sum256([]byte(name))) }

func public(k identity.Key) transaction.PublicKey { return transaction.PublicKey(k.ID()) }

func (c *chain) drop(k identity.Key, lamports uint64) {
	c.Helper()
	if _, err := c.Airdrop(public(k), lamports); err != nil {
		c.Fatal(err)
	}
}

// sign makes a transaction of instructions with the newest blockhash.
func (c *chain) sign(keys []identity.Key, instructions ...transaction.Instruction) []byte {
	c.Helper()
	hash, _ := c.At(Processed, 0).blockhash()
	return signed(c.TB, hash, keys, instructions...)
}

func signed(t testing.TB, hash transaction.Hash, keys []identity.Key, instructions ...transaction.Instruction) []byte {
	t.Helper()
	m, err := transaction.Compile(public(keys[0]), hash, instructions...)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := m.Sign(keys...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := tx.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// send submits instructions of the payer and returns the transaction's error as JSON, or "".
func (c *chain) send(instructions ...transaction.Instruction) string {
	c.Helper()
	r, err := c.submit(c.sign([]identity.Key{c.payer}, instructions...))
	return failure(c.TB, r, err)
}

// failure returns the error of a transaction as JSON.
func failure(t testing.TB, r *Record, err error) string {
	t.Helper()
	if err == nil && r.Err == nil {
		return ""
	}
	e, ok := errors.AsType[*TransactionError](err)
	if err == nil {
		e, ok = r.Err, true
	}
	if !ok {
		t.Fatal(err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// next ends the slot and advances the clock.
func (c *chain) next() {
	now, _ := c.At(Processed, 0).time()
	c.Advance(time.Unix(now+1, 0))
}

func (c *chain) lamports(key transaction.PublicKey) uint64 {
	if a := c.At(Processed, 0).Account(key); a != nil {
		return a.Lamports
	}
	return 0
}

const probeFile = "../sbpf/runtime/testdata/probe.so"

func probe(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(probeFile)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// probeDo returns an instruction for the program of probe.c.
func probeDo(program transaction.PublicKey, command byte, n uint64, accounts ...transaction.AccountMeta) transaction.Instruction {
	return transaction.Instruction{Program: program, Accounts: accounts, Data: le.AppendUint64([]byte{command}, n)}
}

func writable(key transaction.PublicKey) transaction.AccountMeta {
	return transaction.AccountMeta{Key: key, Writable: true}
}

func readable(key transaction.PublicKey) transaction.AccountMeta {
	return transaction.AccountMeta{Key: key}
}
