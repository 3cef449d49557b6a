package wire

import (
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
)

// MaxAnnouncementSize is the size in bytes of the largest announcement, one with a head.
const MaxAnnouncementSize = prefixSize + runSize + 4 + 8 + 8 + 32 + 4 + 32 + 1 + headFieldsSize

// ResultAnnouncement announces that the sender has trained a batch and serves the result.
type ResultAnnouncement struct {
	Run     [32]byte // hash of the run
	Step    uint32
	Batch   assign.BatchID
	Blob    [32]byte // BLAKE3 of the result: the commitment, and the key for fetching it
	Size    uint32   // of the result in bytes, at least 1
	Replica [32]byte // replica hash of the sender when it trained
	// Start is the log's head at the start of the round, signed by the run's host. Its step is the
	// announcement's step. It is zero if no host signs heads, as on a chain.
	Start Head
}

// SignAnnouncement returns the bytes of an announcement signed by key.
func SignAnnouncement(key identity.Key, a ResultAnnouncement) []byte {
	body := append([]byte(nil), a.Run[:]...)
	body = le.AppendUint32(body, a.Step)
	body = le.AppendUint64(body, a.Batch.Start)
	body = le.AppendUint64(body, a.Batch.End)
	body = append(body, a.Blob[:]...)
	body = le.AppendUint32(body, a.Size)
	body = append(body, a.Replica[:]...)
	if a.Start == (Head{}) {
		return seal(key, domainAnnouncement, append(body, 0))
	}
	body = le.AppendUint64(append(body, 1), a.Start.Index)
	body = append(body, a.Start.Hash[:]...)
	return seal(key, domainAnnouncement, append(body, a.Start.Signature[:]...))
}

// OpenAnnouncement verifies the signature of an announcement, decodes it and returns it with its
// sender. The error wraps errSize, errVersion, ErrSignature, ErrRun or errMalformed. The caller
// must check whether the sender was assigned the batch, and whether the host signed the head.
func OpenAnnouncement(raw []byte, run [32]byte) (identity.ID, ResultAnnouncement, error) {
	from, body, err := unseal(domainAnnouncement, raw, MaxAnnouncementSize)
	if err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement: %w", err)
	}
	r := reader{rest: body}
	r.run(run)
	a := ResultAnnouncement{
		Run:     run,
		Step:    r.uint32("step"),
		Batch:   assign.BatchID{Start: r.uint64("batch start"), End: r.uint64("batch end")},
		Blob:    r.hash("blob"),
		Size:    r.uint32("size"),
		Replica: r.hash("replica"),
	}
	if a.Batch.Start >= a.Batch.End {
		r.fail("empty batch")
	}
	if a.Size == 0 {
		r.fail("empty result")
	}
	if r.bool("head") {
		a.Start = Head{Index: r.uint64("index of the head"), Step: a.Step, Hash: r.hash("hash of the head"), Signature: r.signature("signature of the head")}
		if a.Start.Index == 0 || a.Step == 0 {
			r.fail("head with index or step 0")
		}
	}
	if err := r.end(); err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement of %s: %w", from, err)
	}
	return from, a, nil
}
