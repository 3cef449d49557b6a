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
	c := coder{writes: true, bytes: append([]byte(nil), a.Run[:]...)}
	c.announcement(&a)
	return seal(key, domainAnnouncement, c.bytes)
}

// OpenAnnouncement verifies the signature of an announcement, decodes it and returns it with its
// sender. The error wraps errSize, errVersion, ErrSignature, ErrRun or errMalformed. The caller
// must check whether the sender was assigned the batch, and whether the host signed the head.
func OpenAnnouncement(raw []byte, run [32]byte) (identity.ID, ResultAnnouncement, error) {
	from, body, err := unseal(domainAnnouncement, raw, MaxAnnouncementSize)
	if err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement: %w", err)
	}
	c := coder{rest: body}
	c.run(run)
	a := ResultAnnouncement{Run: run}
	c.announcement(&a)
	if err := c.end(); err != nil {
		return identity.ID{}, ResultAnnouncement{}, fmt.Errorf("open announcement of %s: %w", from, err)
	}
	return from, a, nil
}

// announcement moves the fields after the run.
func (c *coder) announcement(a *ResultAnnouncement) {
	c.uint32(&a.Step, "step")
	c.uint64(&a.Batch.Start, "batch start")
	c.uint64(&a.Batch.End, "batch end")
	c.move(a.Blob[:], "blob")
	c.uint32(&a.Size, "size")
	c.move(a.Replica[:], "replica")
	c.check(a.Batch.Start < a.Batch.End, "empty batch")
	c.check(a.Size > 0, "empty result")
	hasHead := a.Start != Head{}
	c.bool(&hasHead, "head")
	if !hasHead {
		return
	}
	a.Start.Step = a.Step
	c.uint64(&a.Start.Index, "index of the head")
	c.move(a.Start.Hash[:], "hash of the head")
	c.move(a.Start.Signature[:], "signature of the head")
	c.check(a.Start.Index > 0 && a.Step > 0, "head with index or step 0")
}
