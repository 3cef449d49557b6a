package wire

import (
	"fmt"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/identity"
)

// MaxAnnouncementSize is the size in bytes of the largest announcement.
const MaxAnnouncementSize = prefixSize + runIDFieldSize + 4 + 8 + 8 + 32 + 4 + 32

// ResultAnnouncement says that the sender has trained a batch and serves the result.
type ResultAnnouncement struct {
	RunID   string
	Step    uint32
	Batch   assign.BatchID
	Blob    [32]byte // BLAKE3 of the result: the commitment, and the name to fetch it by
	Size    uint32   // of the result in bytes, at least 1
	Replica [32]byte // replica hash of the sender when it trained
}

// SignAnnouncement returns the bytes of an announcement signed by key.
func SignAnnouncement(key identity.Key, a ResultAnnouncement) []byte {
	body := appendRunID(nil, a.RunID)
	body = le.AppendUint32(body, a.Step)
	body = le.AppendUint64(body, a.Batch.Start)
	body = le.AppendUint64(body, a.Batch.End)
	body = append(body, a.Blob[:]...)
	body = le.AppendUint32(body, a.Size)
	body = append(body, a.Replica[:]...)
	return seal(key, DomainAnnouncement, body)
}

// OpenAnnouncement verifies the signature of an announcement, decodes it and returns
// it with its sender. The error wraps ErrSize, ErrVersion, ErrSignature, ErrRunID or
// ErrMalformed. Whether the sender was assigned the batch is for the caller to check.
func OpenAnnouncement(raw []byte, runID string) (identity.ID, ResultAnnouncement, error) {
	from, body, err := unseal(DomainAnnouncement, raw, MaxAnnouncementSize)
	if err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement: %w", err)
	}
	r := reader{rest: body}
	r.runID(runID)
	a := ResultAnnouncement{
		RunID:   runID,
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
	if err := r.end(); err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement of %s: %w", from, err)
	}
	return from, a, nil
}
