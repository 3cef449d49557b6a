package rpc

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/chain/transaction"
)

type commitment struct {
	Commitment Commitment `json:"commitment"`
}

// BlockHeight returns the number of blocks.
func (e *Endpoint) BlockHeight(ctx context.Context, c Commitment) (height uint64, err error) {
	err = e.call(ctx, smallAnswer, &height, "getBlockHeight", commitment{c})
	return height, err
}

// Balance returns an account's lamports.
func (e *Endpoint) Balance(ctx context.Context, key transaction.PublicKey, c Commitment) (uint64, error) {
	var found atSlot[uint64]
	err := e.call(ctx, smallAnswer, &found, "getBalance", key, commitment{c})
	return found.Value, err
}

// RentExemption returns the minimum balance of an account of a size, in lamports.
func (e *Endpoint) RentExemption(ctx context.Context, size uint64) (lamports uint64, err error) {
	err = e.call(ctx, smallAnswer, &lamports, "getMinimumBalanceForRentExemption", size)
	return lamports, err
}

// Blockhash is a recent block's hash. A transaction that names it is valid for a limited time.
type Blockhash struct {
	Hash      transaction.Hash
	LastValid uint64 // last block height at which such a transaction is valid
	Slot      uint64 // of the answer
}

// LatestBlockhash returns the newest blockhash.
func (e *Endpoint) LatestBlockhash(ctx context.Context, c Commitment) (Blockhash, error) {
	var found atSlot[struct {
		Blockhash string `json:"blockhash"`
		LastValid uint64 `json:"lastValidBlockHeight"`
	}]
	if err := e.call(ctx, smallAnswer, &found, "getLatestBlockhash", commitment{c}); err != nil {
		return Blockhash{}, err
	}
	hash, err := transaction.ParseHash(found.Value.Blockhash)
	if err != nil {
		return Blockhash{}, fmt.Errorf("%s: getLatestBlockhash: %w: %w", e.name, ErrBadAnswer, err)
	}
	return Blockhash{Hash: hash, LastValid: found.Value.LastValid, Slot: found.Context.Slot}, nil
}

// PrioritizationFees returns, for each of the newest slots, the lowest price of a landed
// transaction that writes to all keys, in millionths of a lamport per compute unit.
func (e *Endpoint) PrioritizationFees(ctx context.Context, keys []transaction.PublicKey) ([]uint64, error) {
	var found []struct {
		Fee uint64 `json:"prioritizationFee"`
	}
	if err := e.call(ctx, smallAnswer, &found, "getRecentPrioritizationFees", keys); err != nil {
		return nil, err
	}
	fees := make([]uint64, len(found))
	for i := range found {
		fees[i] = found[i].Fee
	}
	return fees, nil
}

// GenesisHash returns the hash that identifies the chain.
func (e *Endpoint) GenesisHash(ctx context.Context) (transaction.Hash, error) {
	var text string
	if err := e.call(ctx, smallAnswer, &text, "getGenesisHash"); err != nil {
		return transaction.Hash{}, err
	}
	hash, err := transaction.ParseHash(text)
	if err != nil {
		return transaction.Hash{}, fmt.Errorf("%s: getGenesisHash: %w: %w", e.name, ErrBadAnswer, err)
	}
	return hash, nil
}

// Airdrop requests lamports from a test network.
func (e *Endpoint) Airdrop(ctx context.Context, to transaction.PublicKey, lamports uint64) (transaction.Signature, error) {
	return e.signature(ctx, "requestAirdrop", to, lamports)
}

// signature calls a method that returns a signature.
func (e *Endpoint) signature(ctx context.Context, method string, params ...any) (transaction.Signature, error) {
	var text string
	if err := e.call(ctx, smallAnswer, &text, method, params...); err != nil {
		return transaction.Signature{}, err
	}
	signature, err := transaction.ParseSignature(text)
	if err != nil {
		return transaction.Signature{}, fmt.Errorf("%s: %s: %w: %w", e.name, method, ErrBadAnswer, err)
	}
	return signature, nil
}
