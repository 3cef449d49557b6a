package data

import (
	"encoding/binary"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
)

// receiptDomain is the signature domain of receipts.
const receiptDomain = "psyche/data/receipt/v1"

// Receipt is a data server's signature of a delivered batch. Two receipts of one server that
// contradict each other prove that it sent members of one run different tokens for the same
// sequences.
type Receipt struct {
	Server    identity.ID
	Run       [32]byte // hash of the run
	Batch     assign.BatchID
	Hash      [32]byte // Batch.Hash
	Signature [identity.SignatureSize]byte
}

// SignReceipt returns the receipt for a batch.
func SignReceipt(key identity.Key, run [32]byte, batch assign.BatchID, hash [32]byte) Receipt {
	r := Receipt{Server: key.ID(), Run: run, Batch: batch, Hash: hash}
	r.Signature = key.Sign(receiptDomain, r.signed())
	return r
}

// Verify reports whether the server signed the receipt.
func (r Receipt) Verify() bool {
	return identity.Verify(r.Server, receiptDomain, r.signed(), r.Signature)
}

// Contradicts reports whether two receipts prove that their server is dishonest.
func (r Receipt) Contradicts(other Receipt) bool {
	return r.Server == other.Server && r.Run == other.Run && r.Batch == other.Batch && r.Hash != other.Hash && r.Verify() && other.Verify()
}

func (r Receipt) signed() []byte {
	b := binary.LittleEndian.AppendUint64(r.Run[:], r.Batch.Start)
	b = binary.LittleEndian.AppendUint64(b, r.Batch.End)
	return append(b, r.Hash[:]...)
}
