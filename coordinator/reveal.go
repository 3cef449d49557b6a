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
		part := sha256.Sum256(slices.Concat([]byte(domainReveal), client.ID[:], a.Reveal[:]))
		for i := range s.Reveals {
			s.Reveals[i] ^= part[i]
		}
	}
	client.Commitment = a.Next
}
