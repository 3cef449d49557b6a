package core

import "errors"

// ErrSigned means that this member may have signed a result of the step, or of a later one.
var ErrSigned = errors.New("this key may have signed a result of this step before")

// Signing orders the publication of this member's results: first the signing record of the step is
// durable, then the result is signed, then the signature is announced. A member must never sign two
// results of one step, even after a restart.
type Signing struct {
	newest   uint32 // step with a signed result, of this process or possibly of an earlier one
	recorded uint32 // newest step that Record made durable
}

// Permit allows a member to sign one result of a step. Only Record returns a valid Permit.
type Permit struct{ step uint32 }

// Recall sets the newest step that an earlier process may have signed.
func (s *Signing) Recall(newest uint32) { s.newest = newest }

// Newest returns the newest step that this member may have signed.
func (s *Signing) Newest() uint32 { return s.newest }

// May reports whether a result of the step may be signed.
func (s *Signing) May(step uint32) bool { return step > s.newest }

// Record calls write, which returns when the signing record of the step is durable, and permits to
// sign a result of the step. It calls write once for a step, because a result that was not signed
// may be trained again. Record may run concurrently with the other methods, but not with itself.
func (s *Signing) Record(step uint32, write func() error) (Permit, error) {
	if s.recorded != step {
		if err := write(); err != nil {
			return Permit{}, err
		}
		s.recorded = step
	}
	return Permit{step}, nil
}

// Publish signs a result and then announces the signature. It returns ErrSigned, and calls neither
// function, if the permit is not valid or a result of the step may have been signed before. If sign
// returns an error, no signature exists, and the step may be published again.
func (s *Signing) Publish(p Permit, sign func() (signature []byte, err error), announce func(signature []byte) error) error {
	if p == (Permit{}) || !s.May(p.step) {
		return ErrSigned
	}
	signature, err := sign()
	if err != nil {
		return err
	}
	s.newest = p.step
	return announce(signature)
}
