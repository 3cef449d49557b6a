package hashchain

import (
	"crypto/sha256"
	"math"
)

// MaxLinks bounds a chain: to make one of that length takes some seconds.
const MaxLinks = 1 << 24

// Chain is a hash chain. It is used by one goroutine.
type Chain struct {
	links  int        // values behind the commitment, the last of which is the secret
	stride int        // between two waypoints
	marks  [][32]byte // values at stride 0, 1, 2 … from the secret on
	at     int        // number of the newest value that was asked for; the secret is 0
	near   [][32]byte // values from a waypoint up to the next, around at
	nearAt int        // number of the first of near
}

// New returns the chain of a secret with so many values to reveal, from 1 to MaxLinks.
func New(secret [32]byte, links int) *Chain {
	links = max(1, min(links, MaxLinks))
	c := &Chain{links: links, stride: max(1, int(math.Sqrt(float64(links))))}
	value := secret
	for i := range links + 1 {
		if i%c.stride == 0 {
			c.marks = append(c.marks, value)
		}
		if i < links {
			value = sha256.Sum256(value[:])
		}
	}
	c.at = links
	return c
}

// Commitment returns the first value.
func (c *Chain) Commitment() [32]byte { return c.value(c.links) }

// Opening returns the value whose SHA-256 is the given one, and how many more can follow it. ok is
// false for a value that is not of this chain, and for the secret.
func (c *Chain) Opening(of [32]byte) (opening [32]byte, left int, ok bool) {
	for _, i := range []int{c.at, c.at - 1} { // it is asked for again, or goes on
		if i >= 0 && c.value(i) == of {
			return c.open(i)
		}
	}
	value := c.marks[0]
	for i := range c.links + 1 {
		if value == of {
			return c.open(i)
		}
		value = sha256.Sum256(value[:])
	}
	return [32]byte{}, 0, false
}

// open returns the value behind number i.
func (c *Chain) open(i int) (opening [32]byte, left int, ok bool) {
	c.at = i
	if i == 0 {
		return [32]byte{}, 0, false
	}
	return c.value(i - 1), i - 1, true
}

// value returns the value of a number, from 0 to links.
func (c *Chain) value(i int) [32]byte {
	if first := i - i%c.stride; c.near == nil || first != c.nearAt {
		c.near, c.nearAt = append(c.near[:0], c.marks[i/c.stride]), first
	}
	for len(c.near) <= i-c.nearAt {
		last := c.near[len(c.near)-1]
		c.near = append(c.near, sha256.Sum256(last[:]))
	}
	return c.near[i-c.nearAt]
}
