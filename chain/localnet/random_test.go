package localnet

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

var (
	litesvm      = flag.String("litesvm", "", "folder node_modules with litesvm 1.5.0, to be compared with")
	transactions = flag.Int("transactions", 2000, "random transactions to compare with litesvm")
	seed         = flag.Uint64("seed", 1, "of the random transactions")
)

// TestRandom compares random transactions with litesvm, if it is installed.
func TestRandom(t *testing.T) {
	if *litesvm == "" {
		t.Skip("needs Node and litesvm: -litesvm=<folder>/node_modules")
	}
	c := newChain(t, Config{})
	g := &generator{chain: c, Rand: rand.New(rand.NewPCG(*seed, 0)), program: keyOf("program")}
	steps := deployment(c, g.program, keyOf("buffer"), "")
	steps = append(steps, step{slots: 1})
	for i := range *transactions {
		steps = append(steps, g.step(i))
	}
	file, got := runSteps(c, steps)
	in, out := filepath.Join(t.TempDir(), "scenario.json"), filepath.Join(t.TempDir(), "vectors.json")
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	node := exec.Command("node", "testdata/litesvm/vectors.js", in, out)
	node.Env = append(os.Environ(), "NODE_PATH="+*litesvm)
	if text, err := node.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var want []vector
	readJSON(t, out, &want)
	compare(t, want, got)
	ends := map[string]int{}
	for _, v := range got {
		text, _ := json.Marshal(v.Err)
		ends[string(text)]++
	}
	t.Logf("%d transactions, %d ends: %v", len(got), len(ends), ends)
}

// generator makes transactions that often succeed and sometimes fail.
type generator struct {
	*chain
	*rand.Rand
	program identity.Key
}

// wallets are the keys of accounts, including buffers and data accounts.
var wallets = []identity.Key{keyOf("a"), keyOf("b"), keyOf("c"), keyOf("d"), keyOf("e")}

func (g *generator) wallet() identity.Key { return wallets[g.IntN(len(wallets))] }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// size returns a size near a limit.
func (g *generator) size() uint64 {
	return pick[uint64](g, 0, 1, 7, 8, 37, 45, 100, 10_240, 10_241, 10<<20, 10<<20+1)
}

func (g *generator) lamports() uint64 {
	exempt := g.config.Rent.Minimum(pick(g, 0, 0, 1, 37, 100))
	return pick[uint64](g, 0, 1, exempt-1, exempt, 2*exempt, sol, 2000*sol, 1<<64-1)
}

func (g *generator) step(n int) step {
	keys := []identity.Key{g.payer}
	unique := transaction.ComputeUnitLimit(pick[uint32](g, 300, 5000, 30_000, 200_000, 1_400_000, 3_000_000) + uint32(n))
	instructions := []transaction.Instruction{unique, transaction.ComputeUnitPrice(uint64(n))}
	for range 1 + g.IntN(3) {
		in := g.instruction()
		for i := range in.Accounts {
			if g.IntN(12) == 0 {
				in.Accounts[i].Writable = !in.Accounts[i].Writable
			}
			if g.IntN(12) == 0 {
				in.Accounts[i].Signer = false
			}
			if g.IntN(40) == 0 {
				in.Accounts[i].Key = public(g.wallet())
			}
		}
		if g.IntN(40) == 0 && len(in.Accounts) > 0 {
			in.Accounts = in.Accounts[:len(in.Accounts)-1]
		}
		if g.IntN(40) == 0 {
			in.Data = in.Data[:g.IntN(len(in.Data)+1)]
		}
		for _, a := range in.Accounts {
			for _, k := range wallets {
				if a.Signer && public(k) == a.Key {
					keys = append(keys, k)
				}
			}
		}
		instructions = append(instructions, in)
	}
	return step{name: fmt.Sprintf("seed %d: %x", *seed, datas(instructions)), keys: keys, instructions: instructions, want: anyEnd}
}

func (g *generator) instruction() transaction.Instruction {
	from := pick(g, g.payer, g.payer, g.wallet())
	to, owner := g.wallet(), pick(g, transaction.SystemProgram, public(g.program), public(g.program), transaction.LoaderProgram, transaction.PublicKey{5})
	switch g.IntN(10) {
	case 0:
		return transaction.Transfer(public(from), public(to), g.lamports())
	case 1:
		size := g.size()
		return transaction.CreateAccount(public(from), public(to), pick(g, g.lamports(), g.config.Rent.Minimum(int(min(size, 10<<20)))), size, owner)
	case 2:
		in, err := transaction.CreateAccountWithSeed(public(from), public(from), pick(g, "x", "y", ""), g.lamports(), g.size(), owner)
		if err != nil {
			g.Fatal(err)
		}
		return in
	case 3:
		return pick(g, transaction.Assign(public(to), owner), transaction.Allocate(public(to), g.size()))
	case 4:
		return g.loader(to)
	default:
		var accounts []transaction.AccountMeta
		for range 1 + g.IntN(3) {
			accounts = append(accounts, transaction.AccountMeta{Key: public(g.wallet()), Writable: g.IntN(4) > 0})
		}
		subject := pick[byte](g, 0, 3, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 20, 21, 22, 23, 24, 25, 26, 28, 29, 32, 34, 35)
		n := pick[uint64](g, 0, 1, 2, 5, 8, 100, 1023, 10_240, 10_241, sol, g.lamports(), 26<<32, 1<<32)
		if subject == 4 || subject == 5 || subject == 13 {
			n = g.lamports()
		}
		if subject == 11 {
			n = 0
		}
		if subject == 25 || subject == 35 {
			n = min(n, 1025)
		}
		in := probeDo(public(g.program), subject, n, accounts...)
		in.Data = append(in.Data, transaction.ClockSysvar[:]...)
		return in
	}
}

func (g *generator) loader(buffer identity.Key) transaction.Instruction {
	authority := g.wallet()
	switch g.IntN(4) {
	case 0:
		return transaction.InitializeBuffer(public(buffer), public(authority))
	case 1:
		return transaction.LoaderWrite(public(buffer), public(authority), pick[uint32](g, 0, 10, 62, 63, 64, 1<<31), make([]byte, pick(g, 0, 1, 8)))
	case 2:
		in := transaction.CloseBuffer(public(buffer), public(authority), public(authority))
		in.Data = []byte{4, 0, 0, 0} // sets a new authority
		in.Accounts = []transaction.AccountMeta{writable(public(buffer)), {Key: public(authority), Signer: true}, readable(public(g.wallet()))}
		return in
	}
	return transaction.CloseBuffer(public(buffer), public(g.payer), public(authority))
}

// datas returns the data of instructions, for reports.
func datas(instructions []transaction.Instruction) [][]byte {
	var all [][]byte
	for _, in := range instructions[2:] {
		all = append(all, in.Data[:min(len(in.Data), 24)])
	}
	return all
}
