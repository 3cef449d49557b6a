package data

import (
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
)

// receiptDomain is the signature domain of receipts.
const receiptDomain = "psyche/data/receipt/v1"

// Receipt is a data server's signature of a delivered batch. Two receipts of one server that
// contradict each other prove that it sent members of one run different tokens for the same
// sequences. A receipt does not name positions of a round: if a predicted round does not begin, another round may
// have the same positions with other sequences.
type Receipt struct {
	Server    identity.ID
	Run       [32]byte         // hash of the run
	Sequences []assign.BatchID // intervals, in the order of the tokens
	Hash      [32]byte         // Batch.Hash
	Signature [identity.SignatureSize]byte
}

// SignReceipt returns the receipt for a batch.
func SignReceipt(key identity.Key, run [32]byte, sequences []assign.BatchID, hash [32]byte) Receipt {
	r := Receipt{Server: key.ID(), Run: run, Sequences: sequences, Hash: hash}
	r.Signature = key.Sign(receiptDomain, r.signed())
	return r
}

// Verify reports whether the server signed the receipt.
func (r Receipt) Verify() bool {
	return identity.Verify(r.Server, receiptDomain, r.signed(), r.Signature)
}

// Contradicts reports whether two receipts prove that their server is dishonest.
func (r Receipt) Contradicts(other Receipt) bool {
	return r.Server == other.Server && r.Run == other.Run && slices.Equal(r.Sequences, other.Sequences) && r.Hash != other.Hash && r.Verify() && other.Verify()
}

func (r Receipt) signed() []byte {
	b := slices.Clone(r.Run[:])
	for _, interval := range r.Sequences {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, interval.Start), interval.End)
	}
	return append(b, r.Hash[:]...)
}
