package coordinator

import (
	"crypto/sha256"
	"slices"
)

// domainReveal keeps what members reveal apart from everything else that is hashed.
const domainReveal = "psyche/reveal/v1"

// reveals reports whether a value is the one that the client committed to: zero if to none.
func (c *Client) reveals(value [32]byte) bool {
	if c.Commitment == ([32]byte{}) {
		return value == [32]byte{}
	}
	return sha256.Sum256(value[:]) == c.Commitment
}

// addReveal adds what a member revealed to the reveals of all, in which the order does not
// matter, and keeps its next commitment. Nobody can take back what it revealed.
func (s *State) addReveal(client *Client, a Ready) {
	if client.Commitment != ([32]byte{}) {
		mixReveal(&s.Reveals, client.ID, a.Reveal)
	}
	client.Commitment = a.Next
}

// addReveal adds what a witness reveals to the round's challenge, and makes that its next
// commitment: what it committed to is a chain of hashes. It reports whether the witness may reveal
// that. Zero reveals nothing, and is always in order.
func (r *Round) addReveal(client *Client, value [32]byte) bool {
	if value == ([32]byte{}) {
		return true
	}
	if !client.reveals(value) {
		return false
	}
	mixReveal(&r.Challenge, client.ID, value)
	client.Commitment = value
	return true
}

// mixReveal adds what a client revealed to the reveals of others.
func mixReveal(into *[32]byte, id ClientID, value [32]byte) {
	part := sha256.Sum256(slices.Concat([]byte(domainReveal), id[:], value[:]))
	for i := range into {
		into[i] ^= part[i]
	}
}
