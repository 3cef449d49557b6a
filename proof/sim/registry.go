package sim

import (
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/record/wire"
)

// registry knows who announced what. It stands for signatures: only what its owner signed
// through it can be opened.
type registry struct {
	opened map[string]statement
	byStep map[uint32][]statement
	raws   map[authored][]byte
}

// authored is an announcement and whose it is.
type authored struct {
	author       identity.ID
	announcement wire.ResultAnnouncement
}

// statement is one announcement.
type statement struct {
	author       identity.ID
	announcement wire.ResultAnnouncement
	payload      []byte
}

func newRegistry() registry {
	return registry{opened: make(map[string]statement), byStep: make(map[uint32][]statement), raws: make(map[authored][]byte)}
}

// of returns the statements about a batch by its owner.
func (r *registry) of(step uint32, batch assign.BatchID, owner identity.ID) []statement {
	var found []statement
	for _, s := range r.byStep[step] {
		if s.announcement.Batch == batch && s.author == owner {
			found = append(found, s)
		}
	}
	return found
}
