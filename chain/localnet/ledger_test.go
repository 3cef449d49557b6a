package localnet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// TestLanding checks behaviour that is specific to the chain: which transactions cost a fee without
// being executed.
func TestLanding(t *testing.T) {
	c := newChain(t, Config{})
	program := transaction.PublicKey{1, 1}
	if err := c.SetProgram(program, probe(t)); err != nil {
		t.Fatal(err)
	}
	c.SetAccount(transaction.PublicKey{2}, &Account{Owner: transaction.PublicKey{3}, Lamports: sol, Executable: true})
	c.SetAccount(public(keyOf("owned")), &Account{Owner: program, Lamports: sol})
	var many []transaction.AccountMeta
	for i := range 25 {
		many = append(many, readable(transaction.PublicKey{9, byte(i)}))
	}
	big := probeDo(program, 0, 0, many...)
	again := c.sign([]identity.Key{c.payer}, probeDo(program, 0, 0))
	if r, err := c.submit(again); failure(t, r, err) != "" {
		t.Fatal(err)
	}
	budget := func(in ...byte) transaction.Instruction {
		return transaction.Instruction{Program: transaction.ComputeBudgetProgram, Data: in}
	}
	for name, test := range map[string]struct {
		raw  []byte
		want string
		fee  uint64
	}{
		"no program":                  {c.sign([]identity.Key{c.payer}, transaction.Instruction{Program: transaction.PublicKey{7}}), `"ProgramAccountNotFound"`, 5000},
		"no program account":          {c.sign([]identity.Key{c.payer}, transaction.Instruction{Program: public(keyOf("owned"))}), `"InvalidProgramForExecution"`, 5000},
		"executable without a loader": {c.sign([]identity.Key{c.payer}, transaction.Instruction{Program: transaction.PublicKey{2}}), `"InvalidProgramForExecution"`, 5000},
		"more than may be loaded":     {c.sign([]identity.Key{c.payer}, budget(4, 100, 0, 0, 0), probeDo(program, 0, 1)), `"MaxLoadedAccountsDataSizeExceeded"`, 5000},
		"nothing may be loaded":       {c.sign([]identity.Key{c.payer}, budget(4, 0, 0, 0, 0)), `"InvalidLoadedAccountsDataSizeLimit"`, 0},
		"a heap of an invalid size":   {c.sign([]identity.Key{c.payer}, budget(1, 1, 0, 0, 0)), `{"InstructionError":[0,"InvalidInstructionData"]}`, 0},
		"heap":                        {c.sign([]identity.Key{c.payer}, budget(1, 0, 128, 0, 0)), ``, 5000},
		"many accounts":               {c.sign([]identity.Key{c.payer}, big), `{"InstructionError":[0,"InvalidArgument"]}`, 5000},
		"again":                       {again, `"AlreadyProcessed"`, 0},
		"payer that is no payer":      {signedNow(c, keyOf("owned")), `"InvalidAccountForFee"`, 0},
		"two signatures, two fees":    {c.sign([]identity.Key{c.payer, keyOf("second")}, transaction.Assign(public(keyOf("second")), transaction.SystemProgram)), ``, 10_000},
	} {
		before := c.lamports(public(c.payer))
		r, err := c.submit(test.raw)
		if got := failure(t, r, err); got != test.want || before-c.lamports(public(c.payer)) != test.fee {
			t.Errorf("%s: %s for %d lamports, want %s for %d", name, got, before-c.lamports(public(c.payer)), test.want, test.fee)
		}
	}
}

func signedNow(c *chain, key identity.Key) []byte {
	return c.sign([]identity.Key{key}, transaction.ComputeUnitLimit(10_000))
}

// TestLocks checks that more accounts than a transaction may lock are refused. The test creates the
// message directly, because a message that fits a packet cannot contain that number of accounts.
func TestLocks(t *testing.T) {
	c := newChain(t, Config{})
	m := transaction.Message{Signers: 1, Keys: []transaction.PublicKey{public(c.payer)}}
	for i := range maxLocks {
		m.Keys = append(m.Keys, transaction.PublicKey{8, byte(i)})
	}
	if o := c.try(&transaction.Transaction{Message: m, Signatures: make([]transaction.Signature, 1)}, firstSlot, false); o.Err != errLocks {
		t.Error(o.Err)
	}
}

// TestRefusedBytes checks that invalid or unsigned transactions change nothing.
func TestRefusedBytes(t *testing.T) {
	c := newChain(t, Config{})
	good := c.sign([]identity.Key{c.payer}, transaction.Transfer(public(c.payer), public(keyOf("receiver")), sol))
	before := c.lamports(public(c.payer))
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 0x40
		if r, err := c.submit(bad); err == nil {
			t.Fatalf("a change of byte %d is not detected: %+v", i, r)
		}
	}
	for _, bad := range [][]byte{nil, good[:len(good)-1], append(good[:len(good):len(good)], 0), make([]byte, transaction.MaxSize+1)} {
		if _, err := c.submit(bad); err == nil {
			t.Errorf("%d bytes were accepted", len(bad))
		}
	}
	if c.lamports(public(c.payer)) != before {
		t.Error("the payer lost lamports")
	}
}

// TestDeployedLater checks that a program can be called from the slot after its deployment.
func TestDeployedLater(t *testing.T) {
	c := newChain(t, Config{})
	program := keyOf("program")
	for _, s := range deployment(c, program, keyOf("buffer"), "") {
		r, err := c.submit(c.sign(s.keys, s.instructions...))
		if got := failure(t, r, err); got != s.want {
			t.Fatalf("%s: %s, want %s", s.name, got, s.want)
		}
	}
	if got := c.send(probeDo(public(program), 0, 0)); got != `{"InstructionError":[0,"UnsupportedProgramId"]}` {
		t.Error(got)
	}
	c.next()
	if got := c.send(probeDo(public(program), 0, 0)); got != "" {
		t.Error(got)
	}
	upgraded := keyOf("buffer 2")
	for _, s := range deployment(c, program, upgraded, "upgrade")[:8] {
		if len(s.instructions) != 0 && !strings.Contains(s.name, "final") && !strings.Contains(s.name, "closed") {
			if r, err := c.submit(c.sign(s.keys, s.instructions...)); failure(t, r, err) != s.want {
				t.Fatal(s.name, err)
			}
		}
	}
	in, err := transaction.Upgrade(public(program), public(upgraded), public(c.payer), public(c.payer))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.send(in); got != "" {
		t.Fatal(got)
	}
	c.next()
	if got := c.send(probeDo(public(program), 0, 6003)); got != `{"InstructionError":[0,{"Custom":6003}]}` {
		t.Error(got)
	}
}

// TestLogsEnd checks that logs of more than 10,000 bytes are truncated.
func TestLogsEnd(t *testing.T) {
	c := newChain(t, Config{})
	program := transaction.PublicKey{1, 1}
	if err := c.SetProgram(program, probe(t)); err != nil {
		t.Fatal(err)
	}
	r, err := c.submit(c.sign([]identity.Key{c.payer}, probeDo(program, 35, 400)))
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	size := 0
	for _, line := range r.Logs {
		size += len(line)
	}
	if last := r.Logs[len(r.Logs)-1]; last != "Log truncated" || size > maxLogs+len(last) || size < maxLogs-100 {
		t.Errorf("%d bytes end with %q", size, last)
	}
}

// TestHistory checks that old slots are forgotten after many slots, and that needed data is kept.
func TestHistory(t *testing.T) {
	c := newChain(t, Config{History: 100, Finalized: 4})
	raw := c.sign([]identity.Key{c.payer}, transaction.Transfer(public(c.payer), public(keyOf("receiver")), sol))
	r, err := c.submit(raw)
	if err != nil {
		t.Fatal(err)
	}
	c.skip(5000, 400*time.Millisecond)
	if c.At(Processed, 0).record(r.Name) != nil || len(c.slots) > 1100 || len(c.slots) < 512 {
		t.Errorf("%d slots are kept", len(c.slots))
	}
	if c.lamports(public(keyOf("receiver"))) != sol {
		t.Error("the account is missing")
	}
	v := c.At(Processed, 0)
	if v.Slot != firstSlot+5000 || len(c.sysvars(v.Slot).SlotHashes) != 512 {
		t.Errorf("slot %d, %d hashes", v.Slot, len(c.sysvars(v.Slot).SlotHashes))
	}
	if now, known := v.time(); now != began.Unix()+2000 || !known {
		t.Errorf("%d seconds, want 2000", now-began.Unix())
	}
}

// TestVersions checks that only the versions of accounts that some view shows are kept.
func TestVersions(t *testing.T) {
	c := newChain(t, Config{Finalized: 4})
	program := transaction.PublicKey{1, 1}
	account := transaction.PublicKey{5}
	if err := c.SetProgram(program, probe(t)); err != nil {
		t.Fatal(err)
	}
	c.SetAccount(account, &Account{Owner: program, Lamports: 10 * sol, Data: make([]byte, 1000)})
	for slot := range 200 {
		for i := range 3 {
			if got := c.send(probeDo(program, 3, uint64(i), writable(account)), transaction.ComputeUnitPrice(uint64(slot))); got != "" {
				t.Fatal(got)
			}
		}
		c.next()
		for _, commitment := range []Commitment{Processed, Confirmed, Finalized} {
			for _, lag := range []int{0, 3, maxLag} {
				v := c.At(commitment, lag)
				want := byte(min(v.Slot, uint64(slot+1)))
				if a := v.Account(account); v.Slot >= firstSlot && a.Data[0] != want {
					t.Fatalf("slot %d, %s, %d behind: %d, want %d", slot, commitment, lag, a.Data[0], want)
				}
			}
		}
	}
	if kept := len(c.state[account]); kept > maxLag+8 {
		t.Errorf("%d versions are kept", kept)
	}
}

// TestSeeds checks that chains with different seeds differ, and that chains with the same seed are
// equal.
func TestSeeds(t *testing.T) {
	hashes := func(seed uint64) string {
		c := newChain(t, Config{Seed: seed})
		c.next()
		hash, last := c.At(Processed, 0).blockhash()
		return fmt.Sprint(c.Genesis(), hash, last)
	}
	if first, again := hashes(1), hashes(1); first != again || first == hashes(2) {
		t.Error("chains do not depend on their seeds alone")
	}
}
