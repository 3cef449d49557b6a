package transaction

import "slices"

// Offsets in the data of an ACT with a proof of two signed messages. After the instruction number,
// the action number and the nonce come the key and then, twice, a signature, the length of the
// message, and the message.
const (
	provenKey       = 1 + 8 + 1
	provenFirst     = provenKey + 32
	signatureLength = 64
)

// ActProven submits an action that proves something with two signed messages. The chain verifies
// them in the first of the returned instructions. Call Placed on the instructions of the
// transaction.
func (p Program) ActProven(run, actor PublicKey, nonce uint64, action []byte) []Instruction {
	act := p.Act(run, actor, nonce, action)
	act.Accounts = append(act.Accounts, reads(InstructionsSysvar))
	data := []byte{2, 0}
	at := provenFirst
	for range 2 {
		size := int(le.Uint16(act.Data[at+signatureLength:]))
		message := at + signatureLength + 2
		for _, field := range [...]uint16{uint16(at), 0, provenKey, 0, uint16(message), uint16(size), 0} {
			data = le.AppendUint16(data, field)
		}
		at = message + size
	}
	return []Instruction{{Program: Ed25519Program, Data: data}, act}
}

// Placed returns the instructions of a transaction with the positions of ActProven's instructions
// filled in.
func Placed(instructions []Instruction) []Instruction {
	placed := slices.Clone(instructions)
	for i := range placed {
		if placed[i].Program != Ed25519Program {
			continue
		}
		data := slices.Clone(placed[i].Data)
		for at := 2; at < len(data); at += 14 { // each signature has 14 bytes of fields, three of them instruction numbers
			for _, field := range []int{2, 6, 12} {
				le.PutUint16(data[at+field:], uint16(i+1))
			}
		}
		placed[i].Data = data
	}
	return placed
}
