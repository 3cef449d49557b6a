package coordinator

import (
	"crypto/sha256"
	"slices"
)

// Grantee returns the grantee of the run's authorization for the client, which is its only delegate.
// The grantee is a hash of the grant and the client, so no key can act as this grantee, for example
// to name more delegates, and no other grant or client has the same one.
func (a Admit) Grantee() ClientID {
	return sha256.Sum256(slices.Concat([]byte("psyche/grant/v1"), a.Grant[:], a.Client[:]))
}

// admit adds the authorization of a client that a grant covers, or ends it. Only the client itself
// may add it, because a run has a limited number of authorizations. Any key may end it.
func (s *State) admit(from ClientID, a Admit) error {
	switch {
	case !s.Authority.Permissioned:
		return ErrPermissionless
	case a.Allowed && from != a.Client:
		return ErrNotAuthorised
	}
	return s.setAuthorized(Authorization{Grantee: a.Grantee(), Delegates: []ClientID{a.Client}}, a.Allowed)
}

// Granted returns the clients that the run admits by a grant.
func (a *Authority) Granted(grant ClientID) []ClientID {
	var clients []ClientID
	for _, x := range a.Authorizations {
		if len(x.Delegates) == 1 && x.Grantee == (Admit{Grant: grant, Client: x.Delegates[0]}).Grantee() {
			clients = append(clients, x.Delegates[0])
		}
	}
	return clients
}
