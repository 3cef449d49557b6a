// Package signatures simulates unforgeable signatures of announcements.
package signatures

import (
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/record/wire"
)

// Registry stores the author of every announcement, which simulates signatures: Open accepts only
// announcements that their owner signed through the registry.
type Registry struct {
	opened map[string]Statement
	byStep map[uint32][]Statement
	raws   map[authored][]byte
}

// authored is an announcement with its author.
type authored struct {
	author       identity.ID
	announcement wire.ResultAnnouncement
}

// Statement is one announcement.
type Statement struct {
	Author       identity.ID
	Announcement wire.ResultAnnouncement
	Payload      []byte
}

// New returns an empty registry.
func New() Registry {
	return Registry{opened: make(map[string]Statement), byStep: make(map[uint32][]Statement), raws: make(map[authored][]byte)}
}

// Sign registers the announcement of a result with this payload, and returns the announcement's
// bytes.
func (r *Registry) Sign(key identity.Key, a wire.ResultAnnouncement, payload []byte) []byte {
	of := authored{key.ID(), a}
	raw, again := r.raws[of]
	if !again {
		raw = wire.SignAnnouncement(key, a)
		r.raws[of] = raw
	}
	if _, known := r.opened[string(raw)]; !known {
		s := Statement{of.author, a, payload}
		r.opened[string(raw)] = s
		r.byStep[a.Step] = append(r.byStep[a.Step], s)
	}
	return raw
}

// Open returns the announcement with these bytes. known is false if there is none.
func (r *Registry) Open(raw []byte) (s Statement, known bool) {
	s, known = r.opened[string(raw)]
	return s, known
}

// OfStep returns all statements about a step.
func (r *Registry) OfStep(step uint32) []Statement { return r.byStep[step] }

// Of returns the statements about a batch by its owner.
func (r *Registry) Of(step uint32, batch assign.BatchID, owner identity.ID) []Statement {
	var found []Statement
	for _, s := range r.byStep[step] {
		if s.Announcement.Batch == batch && s.Author == owner {
			found = append(found, s)
		}
	}
	return found
}
