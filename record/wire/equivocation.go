package wire

import (
	"bytes"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Offsets of the fields that an Equivocation compares, in the signed bytes of an announcement.
const (
	announcedRun   = 1 + len(domainAnnouncement) + 1
	announcedStep  = announcedRun + runSize
	announcedBlob  = announcedStep + 4 + 8 + 8
	announcedEnd   = announcedBlob + 32 + 4 + 32 + 1 // without a head
	announcedLimit = announcedEnd + headFieldsSize
)

// announcedPrefix is the start of the signed bytes of an announcement: the domain, in the form of
// package identity, and the version.
var announcedPrefix = append(append([]byte{byte(len(domainAnnouncement))}, domainAnnouncement...), version)

// NewEquivocation returns the proof that the sender of two announcements signed different results
// for one step and batch. OpenAnnouncement must have verified both. ok is false if they prove
// nothing.
func NewEquivocation(first, second []byte) (proof coordinator.Equivocation, ok bool) {
	for i, raw := range [2][]byte{first, second} {
		if len(raw) < prefixSize {
			return proof, false
		}
		proof.Client = coordinator.ClientID(raw[1:])
		proof.Results[i].Signature = [identity.SignatureSize]byte(raw[1+identity.IDSize:])
		proof.Results[i].Message = string(announcedPrefix) + string(raw[prefixSize:])
	}
	if first[0] != version || second[0] != version || !bytes.Equal(first[1:1+identity.IDSize], second[1:1+identity.IDSize]) {
		return proof, false
	}
	proof.Step, ok = equivocates(&proof)
	return proof, ok
}

// Proves reports whether the client of a proof signed both of its announcements for the run with
// that hash. Decoding the proof has already checked that they are for one batch and different
// results.
func Proves(proof coordinator.Equivocation, run [32]byte) bool {
	for i := range proof.Results {
		message := proof.Results[i].Message
		if len(message) < announcedEnd || message[announcedRun:announcedStep] != string(run[:]) ||
			!identity.Verify(identity.ID(proof.Client), domainAnnouncement, []byte(message[1+len(domainAnnouncement):]), proof.Results[i].Signature) {
			return false
		}
	}
	_, ok := equivocates(&proof)
	return ok
}

// equivocates reports whether the messages of a proof are announcements of different results for
// the same batch and step. It also returns the step.
func equivocates(proof *coordinator.Equivocation) (step uint32, ok bool) {
	a, b := proof.Results[0].Message, proof.Results[1].Message
	for _, m := range [2]string{a, b} {
		if len(m) < announcedEnd || m[:announcedRun] != string(announcedPrefix) || len(m) != announcedEnd+int(m[announcedEnd-1])*headFieldsSize {
			return 0, false
		}
	}
	same := a[announcedRun:announcedBlob] == b[announcedRun:announcedBlob]
	other := a[announcedBlob:announcedBlob+32] != b[announcedBlob:announcedBlob+32]
	return le.Uint32([]byte(a[announcedStep:])), same && other
}

// equivocation moves a proof. Proves verifies the signatures of a proof that was read.
func (c *coder) equivocation(a *coordinator.Equivocation) {
	c.move(a.Client[:], "key that signed two results")
	for i := range a.Results {
		result := &a.Results[i]
		c.move(result.Signature[:], "signature of a result")
		n := uint16(len(result.Message))
		c.uint16(&n, "size of an announcement")
		c.check(int(n) <= announcedLimit, "size of an announcement")
		c.string(&result.Message, int(n), "announcement")
	}
	if c.writes || c.err != nil {
		return
	}
	step, ok := equivocates(a)
	a.Step = step
	c.check(ok, "announcements of different batches, or of the same result")
}
