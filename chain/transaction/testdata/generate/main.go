// Command generate writes vectors.txt with the independent implementation
// github.com/gagliardetto/solana-go: transactions, addresses with seeds and derived addresses, in
// hexadecimal.
//
//	go run . > ../vectors.txt
package main

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/gagliardetto/solana-go"
	budget "github.com/gagliardetto/solana-go/programs/compute-budget"
	"github.com/gagliardetto/solana-go/programs/system"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// key returns the key whose seed is n followed by zeros.
func key(n byte) solana.PrivateKey {
	return solana.PrivateKey(ed25519.NewKeyFromSeed(append([]byte{n}, make([]byte, 31)...)))
}

func id(n byte) solana.PublicKey { return key(n).PublicKey() }

func meta(n byte) *solana.AccountMeta { return solana.Meta(id(n)) }

func run() error {
	for n := byte(1); n <= 8; n++ {
		seeded, err := solana.CreateWithSeed(id(n), fmt.Sprintf("run %d", n), id(9))
		if err != nil {
			return err
		}
		fmt.Printf("seeded-%d %x\n", n, seeded[:])
		derived, bump, err := solana.FindProgramAddress([][]byte{{n}, []byte("seed")}, id(9))
		if err != nil {
			return err
		}
		fmt.Printf("derived-%d %x%02x\n", n, derived[:], bump)
		fmt.Printf("curve-%d %v\n", n, solana.IsOnCurve(seeded[:]))
	}
	data, _, err := solana.FindProgramAddress([][]byte{id(9).Bytes()}, solana.BPFLoaderUpgradeableProgramID)
	if err != nil {
		return err
	}
	fmt.Printf("program-data %x\n", data[:])
	for _, t := range transactions() {
		made, err := solana.NewTransaction(t.instructions, solana.Hash(id(8)), solana.TransactionPayer(id(1)))
		if err != nil {
			return err
		}
		_, err = made.Sign(func(k solana.PublicKey) *solana.PrivateKey {
			for n := range byte(10) {
				if id(n) == k {
					private := key(n)
					return &private
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		raw, err := made.MarshalBinary()
		if err != nil {
			return err
		}
		fmt.Printf("%s %x\n", t.name, raw)
	}
	return nil
}

type named struct {
	name         string
	instructions []solana.Instruction
}

func transactions() []named {
	large := make([]byte, 900)
	for i := range large {
		large[i] = byte(i)
	}
	limit := budget.NewSetComputeUnitLimitInstruction(120_000).Build()
	price := budget.NewSetComputeUnitPriceInstruction(1 << 40).Build()
	call := func(data []byte, metas ...*solana.AccountMeta) solana.Instruction {
		return solana.NewInstruction(id(9), metas, data)
	}
	return []named{
		{"transfer", []solana.Instruction{system.NewTransferInstruction(5, id(1), id(2)).Build()}},
		{"create", []solana.Instruction{limit, system.NewCreateAccountInstruction(6, 7, id(9), id(1), id(2)).Build()}},
		{"create-with-seed", []solana.Instruction{createWithSeed(id(1)), price}},
		{"create-with-seed-of-another", []solana.Instruction{createWithSeed(id(2))}},
		{"allocate-with-seed", []solana.Instruction{allocateWithSeed(id(1))}},
		{"allocate-with-seed-of-another", []solana.Instruction{allocateWithSeed(id(2))}},
		{"assign", []solana.Instruction{system.NewAssignInstruction(id(9), id(2)).Build()}},
		{"allocate", []solana.Instruction{system.NewAllocateInstruction(300, id(2)).Build()}},
		{"act", []solana.Instruction{limit, price, call([]byte{4, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, meta(4).WRITE(), meta(1).SIGNER())}},
		{"act-of-another", []solana.Instruction{call(large, meta(4).WRITE(), meta(3).SIGNER()), call([]byte{5}, meta(4).WRITE())}},
		{"announce", []solana.Instruction{call([]byte{7, 0}, meta(3).WRITE(), meta(2).SIGNER(), meta(4)), call([]byte{5, 's'}, meta(4).WRITE())}},
	}
}

func allocateWithSeed(base solana.PublicKey) solana.Instruction {
	account, err := solana.CreateWithSeed(base, "run", id(9))
	if err != nil {
		panic(err)
	}
	return system.NewAllocateWithSeedInstruction(base, "run", 300, id(9), account, base).Build()
}

// createWithSeed lists base as an account only if it is not the payer, as the chain's own library
// does.
func createWithSeed(base solana.PublicKey) solana.Instruction {
	account, err := solana.CreateWithSeed(base, "run", id(9))
	if err != nil {
		panic(err)
	}
	made := system.NewCreateAccountWithSeedInstruction(base, "run", 6, 7, id(9), id(1), account, base).Build()
	data, err := made.Data()
	if err != nil {
		panic(err)
	}
	metas := made.Accounts()
	if base == id(1) {
		metas = metas[:2]
	}
	return solana.NewInstruction(system.ProgramID, metas, data)
}
