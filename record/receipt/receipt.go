package receipt

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// ErrReceipt means that bytes are not a receipt, or that a log does not confirm it.
var ErrReceipt = errors.New("receipt does not verify")

const (
	format = 1
	// MaxSize is the maximum size of a receipt.
	MaxSize = 16 << 10
)

// Receipt summarizes the contributions of a member, according to a log up to an entry.
type Receipt struct {
	Format  int    `json:"format"`
	Run     string `json:"run"` // hash that identifies the run, hex
	RunID   string `json:"run_id"`
	Member  string `json:"member"`  // key, base58
	Entries uint64 `json:"entries"` // number of counted entries of the log
	Head    string `json:"head"`    // hash of the last counted entry, hex
	Time    uint64 `json:"unix_ms"` // newest time in the counted entries

	Rounds    uint64 `json:"rounds"`     // number of rounds in which its result counted
	Tokens    uint64 `json:"tokens"`     // tokens of these results
	AllTokens uint64 `json:"all_tokens"` // tokens of the counted results of all members
	First     uint32 `json:"first_step"` // step of its first counted result; 0: none
	Last      uint32 `json:"last_step"`
	Witnessed uint64 `json:"witness_proofs"`
	Voted     uint64 `json:"votes"` // number of votes as a juror

	ModelStep     uint32 `json:"model_step"` // of the newest model that the run recorded; 0: none
	Model         string `json:"model"`      // its digest, hex
	InModel       uint64 `json:"rounds_in_model"`
	TokensInModel uint64 `json:"tokens_in_model"`
}

// Share returns the member's fraction of the counted tokens.
func (r Receipt) Share() float64 { return float64(r.Tokens) / float64(max(r.AllTokens, 1)) }

// Encode returns the bytes of a receipt.
func (r Receipt) Encode() []byte {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic("receipt: " + err.Error()) // impossible: the fields are strings and numbers
	}
	return append(b, '\n')
}

// Decode decodes the output of Encode, and nothing else. The error wraps ErrReceipt.
func Decode(b []byte) (r Receipt, err error) {
	if len(b) > MaxSize {
		return r, fmt.Errorf("%w: %d bytes, at most %d", ErrReceipt, len(b), MaxSize)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Receipt{}, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Receipt{}, fmt.Errorf("%w: data after the receipt", ErrReceipt)
	}
	if err := r.check(); err != nil {
		return Receipt{}, err
	}
	if !bytes.Equal(r.Encode(), b) {
		return Receipt{}, fmt.Errorf("%w: not in the canonical form that psyche run receipt writes", ErrReceipt)
	}
	return r, nil
}

// check returns an error if a field has a value that no receipt can have.
func (r Receipt) check() error {
	if r.Format != format {
		return fmt.Errorf("%w: format %d, this program reads %d", ErrReceipt, r.Format, format)
	}
	if _, err := identity.ParseID(r.Member); err != nil {
		return fmt.Errorf("%w: member: %w", ErrReceipt, err)
	}
	if len(r.RunID) > coordinator.MaxRunIDLength || r.Entries == 0 {
		return fmt.Errorf("%w: run_id of %d bytes, %d entries", ErrReceipt, len(r.RunID), r.Entries)
	}
	for _, hash := range []struct {
		field, text string
		may         bool
	}{{"run", r.Run, false}, {"head", r.Head, false}, {"model", r.Model, r.ModelStep == 0}} {
		if b, err := hex.DecodeString(hash.text); (err != nil || len(b) != 32) && (!hash.may || hash.text != "") {
			return fmt.Errorf("%w: %s %q is not a hash", ErrReceipt, hash.field, hash.text)
		}
	}
	return nil
}

// Verify compares a receipt with the receipt from a log at the same entry.
func (r Receipt) Verify(log Receipt) error {
	switch {
	case r.Run != log.Run:
		return fmt.Errorf("%w: run is %s, but the log has run %s", ErrReceipt, r.Run, log.Run)
	case r.Entries != log.Entries:
		return fmt.Errorf("%w: the receipt counts %d entries, the log has %d", ErrReceipt, r.Entries, log.Entries)
	case r.Head != log.Head:
		return fmt.Errorf("%w: entry %d of the log differs", ErrReceipt, r.Entries-1)
	case r != log:
		return fmt.Errorf("%w: the numbers differ from the log, which gives:\n%s", ErrReceipt, log.Encode())
	}
	return nil
}
