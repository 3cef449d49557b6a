package remote

import (
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/files/data"
)

const maxReceipts = 1024 // number of receipts to keep

// receipts contains the newest receipts of a server.
type receipts struct {
	of    map[string]data.Receipt // by sequences
	order []string                // oldest first
}

// add stores a receipt, unless it contradicts a stored receipt. In that case the server has sent
// different tokens for the same sequences, and none of its data can be used for training.
func (r *receipts) add(new data.Receipt, logger *slog.Logger) error {
	key := fmt.Sprint(new.Sequences)
	if old, known := r.of[key]; known && new.Contradicts(old) {
		logger.Error("the data server signed two different receipts for the same batch of the same run; keep this line as proof of its misconduct",
			"server", new.Server, "run", hex.EncodeToString(new.Run[:]), "sequences", new.Sequences,
			"hash", hex.EncodeToString(old.Hash[:]), "signature", hex.EncodeToString(old.Signature[:]),
			"other_hash", hex.EncodeToString(new.Hash[:]), "other_signature", hex.EncodeToString(new.Signature[:]))
		return fmt.Errorf("%w: server %s signed hash %[4]x for sequences %[3]v, but before signed %[5]x", data.ErrOtherData, new.Server, new.Sequences, new.Hash, old.Hash)
	} else if !known {
		r.order = append(r.order, key)
	}
	r.of[key] = new
	if len(r.order) > maxReceipts {
		delete(r.of, r.order[0])
		r.order = r.order[1:]
	}
	return nil
}
