package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/transaction"
)

// maxSignatures is the maximum number of signatures in one status request.
const maxSignatures = 256

type sendParameters struct {
	Encoding      string `json:"encoding"`
	SkipPreflight bool   `json:"skipPreflight"`
	MaxRetries    int    `json:"maxRetries"`
}

// Send sends a transaction to the node. The node neither simulates it first nor resends it: the
// caller has to.
func (e *Endpoint) Send(ctx context.Context, raw []byte) (transaction.Signature, error) {
	return e.signature(ctx, "sendTransaction", base64.StdEncoding.EncodeToString(raw), sendParameters{Encoding: "base64", SkipPreflight: true})
}

// Status is the status of a transaction.
type Status struct {
	Slot       uint64            `json:"slot"`
	Err        *TransactionError `json:"err"`
	Commitment Commitment        `json:"confirmationStatus"`
}

// Reached reports whether the transaction has at least the commitment c.
func (s *Status) Reached(c Commitment) bool {
	rank := map[Commitment]int{Processed: 1, Confirmed: 2, Finalized: 3}
	return rank[s.Commitment] >= rank[c]
}

// Statuses returns the statuses of transactions in their order. A status is nil if the node does
// not know the transaction. Without history, a node forgets transactions after some minutes.
func (e *Endpoint) Statuses(ctx context.Context, signatures []transaction.Signature, history bool) ([]*Status, uint64, error) {
	if len(signatures) == 0 || len(signatures) > maxSignatures {
		return nil, 0, fmt.Errorf("%d signatures at once, want 1 to %d", len(signatures), maxSignatures)
	}
	texts := make([]string, len(signatures))
	for i, s := range signatures {
		texts[i] = s.String()
	}
	var found atSlot[[]*Status]
	if err := e.call(ctx, smallAnswer, &found, "getSignatureStatuses", texts, map[string]any{"searchTransactionHistory": history}); err != nil {
		return nil, 0, err
	}
	if len(found.Value) != len(signatures) {
		return nil, 0, fmt.Errorf("%s: getSignatureStatuses: %w: %d statuses, asked for %d", e.name, ErrBadAnswer, len(found.Value), len(signatures))
	}
	return found.Value, found.Context.Slot, nil
}

// Named is a transaction in an account's history.
type Named struct {
	Signature transaction.Signature
	Slot      uint64
	Err       *TransactionError
}

// History returns the transactions that named an account, newest first. It returns at most limit
// transactions, 1 to 1000, that are older than before and newer than until, if these are not zero.
func (e *Endpoint) History(ctx context.Context, key transaction.PublicKey, before, until transaction.Signature, limit int, c Commitment) ([]Named, error) {
	parameters := map[string]any{"limit": limit, "commitment": c}
	if before != (transaction.Signature{}) {
		parameters["before"] = before.String()
	}
	if until != (transaction.Signature{}) {
		parameters["until"] = until.String()
	}
	var found []struct {
		Signature string            `json:"signature"`
		Slot      uint64            `json:"slot"`
		Err       *TransactionError `json:"err"`
	}
	if err := e.call(ctx, smallAnswer, &found, "getSignaturesForAddress", key, parameters); err != nil {
		return nil, err
	}
	all := make([]Named, len(found))
	for i, f := range found {
		signature, err := transaction.ParseSignature(f.Signature)
		if err != nil {
			return nil, fmt.Errorf("%s: getSignaturesForAddress: %w: %w", e.name, ErrBadAnswer, err)
		}
		all[i] = Named{Signature: signature, Slot: f.Slot, Err: f.Err}
	}
	return all, nil
}

// Landed is a transaction on the chain.
type Landed struct {
	Slot        uint64
	Transaction transaction.Transaction
	Err         *TransactionError
	Logs        []string
	Fee         uint64 // lamports
	Units       uint64
}

// Transaction returns a transaction, or nil if the node does not know it.
func (e *Endpoint) Transaction(ctx context.Context, signature transaction.Signature, c Commitment) (*Landed, error) {
	var found *struct {
		Slot        uint64   `json:"slot"`
		Transaction []string `json:"transaction"`
		Meta        struct {
			Err   *TransactionError `json:"err"`
			Fee   uint64            `json:"fee"`
			Logs  []string          `json:"logMessages"`
			Units uint64            `json:"computeUnitsConsumed"`
		} `json:"meta"`
	}
	err := e.call(ctx, smallAnswer, &found, "getTransaction", signature.String(),
		map[string]any{"encoding": "base64", "commitment": c, "maxSupportedTransactionVersion": 0})
	if err != nil || found == nil {
		return nil, err
	}
	if len(found.Transaction) != 2 || found.Transaction[1] != "base64" {
		return nil, fmt.Errorf("%s: transaction %s: %w: not base64", e.name, signature, ErrBadAnswer)
	}
	raw, err := base64.StdEncoding.DecodeString(found.Transaction[0])
	if err != nil {
		return nil, fmt.Errorf("%s: transaction %s: %w: %w", e.name, signature, ErrBadAnswer, err)
	}
	t, err := transaction.Unmarshal(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: transaction %s: %w", e.name, signature, errors.Join(ErrBadAnswer, err))
	}
	if t.Name() != signature {
		return nil, fmt.Errorf("%s: transaction %s: %w: the endpoint answered %s", e.name, signature, ErrBadAnswer, t.Name())
	}
	return &Landed{Slot: found.Slot, Transaction: t, Err: found.Meta.Err, Logs: found.Meta.Logs, Fee: found.Meta.Fee, Units: found.Meta.Units}, nil
}
