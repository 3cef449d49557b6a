package coordinator

import (
	"crypto/sha256"
	"slices"
)

// domainReveal is the hash domain of revealed values.
const domainReveal = "psyche/reveal/v1"

// reveals reports whether a value opens the client's commitment. Without a commitment, only zero
// does.
func (c *Client) reveals(value [32]byte) bool {
	if c.Commitment == ([32]byte{}) {
		return value == [32]byte{}
	}
	return sha256.Sum256(value[:]) == c.Commitment
}

// addReveal adds a member's revealed value to the combined reveals, in which the order does not
// matter, and stores its next commitment. A member cannot take back a revealed value.
func (s *State) addReveal(client *Client, a Ready) {
	if client.Commitment != ([32]byte{}) {
		mixReveal(&s.Reveals, client.ID, a.Reveal)
	}
	client.Commitment = a.Next
}

// addReveal adds a witness's revealed value to the round's challenge. Commitments form a hash chain,
// so the revealed value becomes the witness's next commitment. addReveal reports whether the value
// opens the commitment. Zero reveals nothing, and is always permitted.
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

// mixReveal adds a client's revealed value to a mix of revealed values.
func mixReveal(into *[32]byte, id ClientID, value [32]byte) {
	part := sha256.Sum256(slices.Concat([]byte(domainReveal), id[:], value[:]))
	for i := range into {
		into[i] ^= part[i]
	}
}
