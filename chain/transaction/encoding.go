package transaction

import (
	"crypto/ed25519"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
)

// sign signs bytes without a domain, because transactions have none.
func sign(key identity.Key, message []byte) Signature {
	return Signature(ed25519.Sign(key.Private(), message))
}

// Verify returns errSignature if a signature is invalid.
func (t *Transaction) Verify() error {
	if len(t.Signatures) != int(t.Message.Signers) {
		return fmt.Errorf("%w: %d signatures, want %d", errSignature, len(t.Signatures), t.Message.Signers)
	}
	message := t.Message.AppendTo(nil)
	for i, signature := range t.Signatures {
		if key := t.Message.Keys[i]; !ed25519.Verify(key[:], message, signature[:]) {
			return fmt.Errorf("%w: the signature of %s does not verify", errSignature, key)
		}
	}
	return nil
}

// AppendTo appends the bytes that the signatures cover.
func (m *Message) AppendTo(b []byte) []byte {
	b = append(b, m.Signers, m.ReadOnlySigners, m.ReadOnlyUnsigned)
	b = appendLength(b, len(m.Keys))
	for _, key := range m.Keys {
		b = append(b, key[:]...)
	}
	b = append(b, m.Blockhash[:]...)
	b = appendLength(b, len(m.Instructions))
	for _, in := range m.Instructions {
		b = append(b, in.Program)
		b = append(appendLength(b, len(in.Accounts)), in.Accounts...)
		b = append(appendLength(b, len(in.Data)), in.Data...)
	}
	return b
}

// size returns the size of the message's transaction in bytes.
func (m *Message) size() int {
	return len(appendLength(nil, int(m.Signers))) + int(m.Signers)*len(Signature{}) + len(m.AppendTo(nil))
}

// Marshal returns the encoded transaction.
func (t *Transaction) Marshal() ([]byte, error) {
	b := appendLength(nil, len(t.Signatures))
	for _, signature := range t.Signatures {
		b = append(b, signature[:]...)
	}
	b = t.Message.AppendTo(b)
	if len(b) > MaxSize {
		return nil, fmt.Errorf("marshal transaction: %w: %d bytes, at most %d", ErrTooLarge, len(b), MaxSize)
	}
	return b, nil
}

// Unmarshal parses the output of Marshal. It does not verify the signatures. The error wraps
// ErrTooLarge or ErrMalformed.
func Unmarshal(b []byte) (Transaction, error) {
	if len(b) > MaxSize {
		return Transaction{}, fmt.Errorf("read transaction: %w: %d bytes, at most %d", ErrTooLarge, len(b), MaxSize)
	}
	r := reader{rest: b}
	var t Transaction
	for range r.length("signatures", len(Signature{})) {
		t.Signatures = append(t.Signatures, Signature(r.take(len(Signature{}), "signature")))
	}
	r.message(&t.Message)
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes after the end", len(r.rest)))
	}
	if r.err == nil && len(t.Signatures) != int(t.Message.Signers) {
		r.fail(fmt.Sprintf("%d signatures for %d signers", len(t.Signatures), t.Message.Signers))
	}
	if r.err == nil {
		r.err = t.Message.check()
	}
	if r.err != nil {
		return Transaction{}, fmt.Errorf("read transaction: %w", r.err)
	}
	return t, nil
}

// reader parses a transaction. After the first error everything reads as zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(subject string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, subject)
	}
}

func (r *reader) take(n int, field string) []byte {
	if r.err == nil && len(r.rest) < n {
		r.fail("ends within " + field)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) message(m *Message) {
	header := r.take(3, "header")
	if header[0]&0x80 != 0 {
		r.fail("versioned message, want the legacy format")
	}
	m.Signers, m.ReadOnlySigners, m.ReadOnlyUnsigned = header[0], header[1], header[2]
	for range r.length("accounts", len(PublicKey{})) {
		m.Keys = append(m.Keys, PublicKey(r.take(len(PublicKey{}), "account")))
	}
	m.Blockhash = Hash(r.take(len(Hash{}), "blockhash"))
	for range r.length("instructions", 3) {
		in := CompiledInstruction{Program: r.take(1, "program")[0]}
		in.Accounts = append(in.Accounts, r.take(r.length("accounts of an instruction", 1), "accounts of an instruction")...)
		in.Data = append(in.Data, r.take(r.length("data", 1), "data")...)
		m.Instructions = append(m.Instructions, in)
	}
}

// length reads a count, encoded in 7 bits per byte, of elements with at least size bytes each.
func (r *reader) length(field string, size int) int {
	value := 0
	for shift := 0; shift < 21; shift += 7 {
		b := r.take(1, "the number of "+field)[0]
		value |= int(b&0x7f) << shift
		if b&0x80 != 0 {
			continue
		}
		switch {
		case b == 0 && shift > 0:
			r.fail("the number of " + field + " is not in its shortest form")
		case value*size > len(r.rest):
			r.fail(fmt.Sprintf("%d %s do not fit", value, field))
		}
		if r.err != nil {
			return 0
		}
		return value
	}
	r.fail("the number of " + field + " does not end")
	return 0
}

// appendLength appends a count in 7 bits per byte, low bits first.
func appendLength(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}
