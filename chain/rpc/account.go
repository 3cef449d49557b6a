package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/psyche-go/psyche/chain/transaction"
)

// Commitment is the confirmation level of an answer.
type Commitment string

// The commitments.
const (
	Processed Commitment = "processed" // the node has processed it
	Confirmed Commitment = "confirmed" // two thirds of the stake voted for it
	Finalized Commitment = "finalized" // it cannot be rolled back
)

// maxAccountAnswer limits an answer with one account. Psyche's largest account is a run's, with
// about 280,000 bytes.
const maxAccountAnswer = 1 << 20

// maxData limits an account's data after decompression.
const maxData = 2 << 20

// MaxAccounts is the maximum number of accounts in one request.
const MaxAccounts = 100

// Account is an account of the chain.
type Account struct {
	Lamports   uint64
	Owner      transaction.PublicKey
	Executable bool
	Data       []byte // or the requested slice of it
}

// Slice is a part of an account's data.
type Slice struct {
	Offset uint64 `json:"offset"`
	Length uint64 `json:"length"`
}

// Query configures a request of accounts.
type Query struct {
	Commitment Commitment
	Slice      *Slice // nil: everything
	MinSlot    uint64 // a node that is behind this slot returns an error
}

type queryParameters struct {
	Encoding   string     `json:"encoding"`
	Commitment Commitment `json:"commitment,omitempty"`
	Slice      *Slice     `json:"dataSlice,omitempty"`
	MinSlot    uint64     `json:"minContextSlot,omitempty"`
}

func (q Query) parameters() queryParameters {
	p := queryParameters{Encoding: "base64+zstd", Commitment: q.Commitment, Slice: q.Slice, MinSlot: q.MinSlot}
	if q.Slice != nil {
		p.Encoding = "base64" // compression is not worth its cost for a few bytes
	}
	return p
}

// atSlot is a result, and the slot of the node's state that it was read from.
type atSlot[T any] struct {
	Context struct{ Slot uint64 }
	Value   T
}

// UnmarshalJSON requires both fields, because a missing field would read as zero.
func (a *atSlot[T]) UnmarshalJSON(b []byte) error {
	var parts struct {
		Context *struct {
			Slot uint64 `json:"slot"`
		} `json:"context"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if parts.Context == nil || len(parts.Value) == 0 {
		return errors.New("context or value is missing")
	}
	a.Context.Slot = parts.Context.Slot
	return json.Unmarshal(parts.Value, &a.Value)
}

type rawAccount struct {
	Lamports   uint64            `json:"lamports"`
	Owner      string            `json:"owner"`
	Executable bool              `json:"executable"`
	Data       []json.RawMessage `json:"data"` // text and its encoding
}

// Account returns an account and the slot of the answer. The account is nil if it does not exist.
func (e *Endpoint) Account(ctx context.Context, key transaction.PublicKey, q Query) (*Account, uint64, error) {
	var found atSlot[*rawAccount]
	if err := e.call(ctx, maxAccountAnswer, &found, "getAccountInfo", key, q.parameters()); err != nil {
		return nil, 0, err
	}
	account, err := found.Value.decode()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: account %s: %w", e.name, key, err)
	}
	return account, found.Context.Slot, nil
}

// Accounts returns at most MaxAccounts accounts in the order of keys. An account that does not
// exist is nil.
func (e *Endpoint) Accounts(ctx context.Context, keys []transaction.PublicKey, q Query) ([]*Account, uint64, error) {
	if len(keys) == 0 || len(keys) > MaxAccounts {
		return nil, 0, fmt.Errorf("%d accounts at once, want 1 to %d", len(keys), MaxAccounts)
	}
	var found atSlot[[]*rawAccount]
	if err := e.call(ctx, largeAnswer, &found, "getMultipleAccounts", keys, q.parameters()); err != nil {
		return nil, 0, err
	}
	if len(found.Value) != len(keys) {
		return nil, 0, fmt.Errorf("%s: %w: %d accounts, asked for %d", e.name, ErrBadAnswer, len(found.Value), len(keys))
	}
	accounts := make([]*Account, len(keys))
	for i, raw := range found.Value {
		account, err := raw.decode()
		if err != nil {
			return nil, 0, fmt.Errorf("%s: account %s: %w", e.name, keys[i], err)
		}
		accounts[i] = account
	}
	return accounts, found.Context.Slot, nil
}

// Filter selects accounts whose data contains these bytes at this offset.
type Filter struct {
	Offset uint64
	Bytes  []byte
}

// KeyedAccount is an account and its address.
type KeyedAccount struct {
	Key transaction.PublicKey
	Account
}

// ProgramAccounts returns the accounts of a program that match all filters and have size bytes, or
// any size if size is 0.
func (e *Endpoint) ProgramAccounts(ctx context.Context, program transaction.PublicKey, size uint64, filters []Filter, q Query) ([]KeyedAccount, error) {
	var conditions []any
	if size != 0 {
		conditions = append(conditions, map[string]any{"dataSize": size})
	}
	for _, f := range filters {
		conditions = append(conditions, map[string]any{"memcmp": map[string]any{
			"offset": f.Offset, "bytes": base64.StdEncoding.EncodeToString(f.Bytes), "encoding": "base64",
		}})
	}
	parameters := struct {
		queryParameters
		Filters []any `json:"filters,omitempty"`
	}{q.parameters(), conditions}
	var found []struct {
		Pubkey  string      `json:"pubkey"`
		Account *rawAccount `json:"account"`
	}
	if err := e.call(ctx, largeAnswer, &found, "getProgramAccounts", program, parameters); err != nil {
		return nil, err
	}
	accounts := make([]KeyedAccount, 0, len(found))
	budget := 4 * largeAnswer // of all decompressed data
	for _, f := range found {
		key, err := transaction.ParsePublicKey(f.Pubkey)
		if err != nil {
			return nil, fmt.Errorf("%s: accounts of %s: %w: %w", e.name, program, ErrBadAnswer, err)
		}
		account, err := f.Account.decode()
		if err != nil || account == nil {
			return nil, fmt.Errorf("%s: account %s: %w", e.name, key, errors.Join(ErrBadAnswer, err))
		}
		if budget -= len(account.Data); budget < 0 {
			return nil, fmt.Errorf("%s: accounts of %s: %w: more than %d bytes", e.name, program, ErrBadAnswer, 4*largeAnswer)
		}
		accounts = append(accounts, KeyedAccount{key, *account})
	}
	return accounts, nil
}

// unpacker is shared. It is safe for concurrent use.
var unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxData), zstd.WithDecoderMaxWindow(8<<20))

// decode decodes the data of an account. It returns nil for an account that does not exist.
func (r *rawAccount) decode() (*Account, error) {
	if r == nil {
		return nil, nil
	}
	owner, err := transaction.ParsePublicKey(r.Owner)
	if err != nil {
		return nil, fmt.Errorf("%w: owner: %w", ErrBadAnswer, err)
	}
	var text, encoding string
	if len(r.Data) != 2 {
		return nil, fmt.Errorf("%w: data has %d parts, want text and encoding", ErrBadAnswer, len(r.Data))
	}
	if err := errors.Join(json.Unmarshal(r.Data[0], &text), json.Unmarshal(r.Data[1], &encoding)); err != nil {
		return nil, fmt.Errorf("%w: data: %w", ErrBadAnswer, err)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: data: %w", ErrBadAnswer, err)
	}
	switch encoding {
	case "base64":
	case "base64+zstd":
		if data, err = unpacker.DecodeAll(data, nil); err != nil {
			return nil, fmt.Errorf("%w: unpack data: %w", ErrBadAnswer, err)
		}
	default:
		return nil, fmt.Errorf("%w: data is encoded as %q", ErrBadAnswer, shorten([]byte(encoding)))
	}
	if len(data) > maxData {
		return nil, fmt.Errorf("%w: data has %d bytes, at most %d", ErrBadAnswer, len(data), maxData)
	}
	return &Account{Lamports: r.Lamports, Owner: owner, Executable: r.Executable, Data: data}, nil
}
