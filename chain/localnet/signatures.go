package localnet

import (
	"crypto/ed25519"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Errors of the program that verifies signatures, by the chain's numbers.
const (
	errSignature = 2
	errOffsets   = 3
	errSize      = 4
)

// Sizes of the parts of an instruction that verifies signatures.
const (
	checksAt    = 2
	checkSize   = 14
	thisOne     = 0xffff // refers to the instruction itself
	pubKeySize  = ed25519.PublicKeySize
	signatureOf = ed25519.SignatureSize
)

// signatures verifies the signatures of an instruction. The signatures, the keys and the messages
// may be in the data of any instruction of the transaction.
func (e *execution) signatures(data []byte) error {
	if len(data) < checksAt || data[0] == 0 && len(data) > checksAt || len(data) < checksAt+int(data[0])*checkSize {
		return custom(errSize)
	}
	for i := range int(data[0]) {
		field := func(n int) int { return int(le.Uint16(data[checksAt+i*checkSize+2*n:])) }
		place := func(at, size, instruction int) []byte {
			from := data
			if instruction != thisOne {
				if instruction >= len(e.message.Instructions) {
					return nil
				}
				from = e.message.Instructions[instruction].Data
			}
			if at+size > len(from) {
				return nil
			}
			return from[at : at+size : at+size]
		}
		signature, key := place(field(0), signatureOf, field(1)), place(field(2), pubKeySize, field(3))
		message := place(field(4), field(5), field(6))
		if signature == nil || key == nil || message == nil {
			return custom(errOffsets)
		}
		if !ed25519.Verify(key, message, signature) {
			return custom(errSignature)
		}
	}
	return nil
}

func custom(code uint32) error { return runtime.Error{Name: "Custom", Code: code} }

// verified returns the number of signatures that a message's instructions verify. Each costs the
// same fee as a signature of the transaction.
func verified(m *transaction.Message) int {
	count := 0
	for _, in := range m.Instructions {
		if m.Keys[in.Program] == transaction.Ed25519Program && len(in.Data) > 0 {
			count += int(in.Data[0])
		}
	}
	return count
}

// showInstructions sets the sysvar of the transaction's instructions for one of them.
func (e *execution) showInstructions(current int) {
	at := -1
	for i, key := range e.message.Keys {
		if key == transaction.InstructionsSysvar {
			at = i
		}
	}
	if at < 0 {
		return
	}
	var all []runtime.Instruction
	for _, in := range e.message.Instructions {
		shown := runtime.Instruction{Program: e.message.Keys[in.Program], Data: in.Data}
		for _, account := range in.Accounts {
			shown.Accounts = append(shown.Accounts, e.accounts[account])
		}
		all = append(all, shown)
	}
	e.accounts[at].Owner, e.accounts[at].Data = sysvarProgram, runtime.InstructionsBytes(all, current)
}
