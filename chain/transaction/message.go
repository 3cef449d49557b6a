package transaction

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
)

// MaxSize is the maximum size of a transaction in bytes: the content of one packet.
const MaxSize = 1232

// SignatureFee is the fee for each signature of a transaction, in lamports.
const SignatureFee = 5_000

// maxAccounts limits the accounts of a transaction: an index has one byte.
const maxAccounts = 256

// Errors for invalid transactions.
var (
	ErrTooLarge  = errors.New("transaction is too large")
	ErrMalformed = errors.New("malformed transaction")
	errSignature = errors.New("transaction is not signed by all required keys")
)

// AccountMeta is an account that an instruction uses, with its access mode.
type AccountMeta struct {
	Key      PublicKey
	Signer   bool
	Writable bool
}

// Instruction is one call of a program.
type Instruction struct {
	Program  PublicKey
	Accounts []AccountMeta
	Data     []byte
}

// Message is the signed part of a transaction, in the legacy format.
type Message struct {
	Signers          uint8 // number of keys at the start that sign
	ReadOnlySigners  uint8 // number of keys at the end of the signers that are read-only
	ReadOnlyUnsigned uint8 // number of keys at the end of all keys that are read-only
	Keys             []PublicKey
	Blockhash        Hash
	Instructions     []CompiledInstruction
}

// CompiledInstruction is an instruction that refers to accounts by their index in Message.Keys.
type CompiledInstruction struct {
	Program  uint8
	Accounts []uint8
	Data     []byte
}

// Compile orders the accounts: the payer, other writable signers, read-only signers, other writable
// accounts, the rest. Within each group, the accounts are in the order of the instructions.
func Compile(payer PublicKey, blockhash Hash, instructions ...Instruction) (Message, error) {
	metas := collect(payer, instructions)
	if len(metas) > maxAccounts {
		return Message{}, fmt.Errorf("compile transaction: %w: %d accounts, at most %d", ErrTooLarge, len(metas), maxAccounts)
	}
	m := Message{Blockhash: blockhash}
	places := make(map[PublicKey]uint8, len(metas))
	for i, meta := range metas {
		places[meta.Key] = uint8(i)
		m.Keys = append(m.Keys, meta.Key)
		switch {
		case meta.Signer && !meta.Writable:
			m.ReadOnlySigners++
			fallthrough
		case meta.Signer:
			m.Signers++
		case !meta.Writable:
			m.ReadOnlyUnsigned++
		}
	}
	for _, in := range instructions {
		compiled := CompiledInstruction{Program: places[in.Program], Data: slices.Clone(in.Data)}
		for _, account := range in.Accounts {
			compiled.Accounts = append(compiled.Accounts, places[account.Key])
		}
		m.Instructions = append(m.Instructions, compiled)
	}
	if size := m.size(); size > MaxSize {
		return Message{}, fmt.Errorf("compile transaction: %w: %d bytes, at most %d", ErrTooLarge, size, MaxSize)
	}
	return m, m.check()
}

// collect returns every account once, with the union of its access modes, in the order of a
// message.
func collect(payer PublicKey, instructions []Instruction) []AccountMeta {
	metas := []AccountMeta{{Key: payer, Signer: true, Writable: true}}
	places := map[PublicKey]int{payer: 0}
	add := func(meta AccountMeta) {
		i, found := places[meta.Key]
		if !found {
			i = len(metas)
			places[meta.Key] = i
			metas = append(metas, AccountMeta{Key: meta.Key})
		}
		metas[i].Signer = metas[i].Signer || meta.Signer
		metas[i].Writable = metas[i].Writable || meta.Writable
	}
	for _, in := range instructions {
		for _, meta := range in.Accounts {
			add(meta)
		}
	}
	for _, in := range instructions {
		add(AccountMeta{Key: in.Program})
	}
	group := func(m AccountMeta) int {
		switch {
		case m.Signer && m.Writable:
			return 0
		case m.Signer:
			return 1
		case m.Writable:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(metas, func(a, b AccountMeta) int { return group(a) - group(b) })
	return metas
}

// IsSigner reports whether the i-th account of Keys signs.
func (m *Message) IsSigner(i int) bool { return i < int(m.Signers) }

// IsWritable reports whether the i-th account of Keys is writable.
func (m *Message) IsWritable(i int) bool {
	if m.IsSigner(i) {
		return i < int(m.Signers)-int(m.ReadOnlySigners)
	}
	return i < len(m.Keys)-int(m.ReadOnlyUnsigned)
}

// Instruction returns the n-th instruction as it was before Compile.
func (m *Message) Instruction(n int) Instruction {
	compiled := &m.Instructions[n]
	in := Instruction{Program: m.Keys[compiled.Program], Data: compiled.Data}
	for _, i := range compiled.Accounts {
		in.Accounts = append(in.Accounts, AccountMeta{Key: m.Keys[i], Signer: m.IsSigner(int(i)), Writable: m.IsWritable(int(i))})
	}
	return in
}

// check returns an error if every chain would reject the message.
func (m *Message) check() error {
	switch {
	case m.Signers == 0 || int(m.Signers) > len(m.Keys):
		return fmt.Errorf("%w: %d signers of %d accounts", ErrMalformed, m.Signers, len(m.Keys))
	case m.ReadOnlySigners >= m.Signers:
		return fmt.Errorf("%w: the payer may not be read-only", ErrMalformed)
	case int(m.ReadOnlyUnsigned) > len(m.Keys)-int(m.Signers):
		return fmt.Errorf("%w: %d read-only accounts among %d that do not sign", ErrMalformed, m.ReadOnlyUnsigned, len(m.Keys)-int(m.Signers))
	}
	seen := make(map[PublicKey]bool, len(m.Keys))
	for _, key := range m.Keys {
		if seen[key] {
			return fmt.Errorf("%w: account %s occurs twice", ErrMalformed, key)
		}
		seen[key] = true
	}
	for n, in := range m.Instructions {
		if in.Program == 0 || int(in.Program) >= len(m.Keys) {
			return fmt.Errorf("%w: instruction %d calls account %d of %d", ErrMalformed, n, in.Program, len(m.Keys))
		}
		for _, i := range in.Accounts {
			if int(i) >= len(m.Keys) {
				return fmt.Errorf("%w: instruction %d names account %d of %d", ErrMalformed, n, i, len(m.Keys))
			}
		}
	}
	return nil
}

// Transaction is a message with its signatures, in the order of its first keys.
type Transaction struct {
	Signatures []Signature
	Message    Message
}

// Sign signs the message with the keys of all its signers, in any order.
func (m Message) Sign(keys ...identity.Key) (Transaction, error) {
	t := Transaction{Message: m, Signatures: make([]Signature, m.Signers)}
	signed := m.AppendTo(nil)
	for i := range t.Signatures {
		n := slices.IndexFunc(keys, func(k identity.Key) bool { return PublicKey(k.ID()) == m.Keys[i] })
		if n < 0 {
			return Transaction{}, fmt.Errorf("sign transaction: %w: the key of %s is missing", errSignature, m.Keys[i])
		}
		t.Signatures[i] = sign(keys[n], signed)
	}
	return t, nil
}

// Name returns the first signature, which identifies the transaction on the chain.
func (t *Transaction) Name() Signature {
	if len(t.Signatures) == 0 {
		return Signature{}
	}
	return t.Signatures[0]
}
