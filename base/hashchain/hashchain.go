package hashchain

import (
	"crypto/sha256"
	"math"
)

// MaxLinks limits the length of a chain. Creating a chain of this length takes some seconds.
const MaxLinks = 1 << 24

// Chain is a hash chain. It is not safe for concurrent use.
type Chain struct {
	links  int        // values after the commitment, including the secret at the end
	stride int        // distance between waypoints
	marks  [][32]byte // values at distances 0, stride, 2·stride … from the secret
	at     int        // number of the newest requested value; the secret has number 0
	near   [][32]byte // values from a waypoint up to the next, around at
	nearAt int        // number of the first value in near
}

// New returns the chain of a secret. It has links values to reveal; links is from 1 to MaxLinks.
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

// Opening returns the value whose SHA-256 is the given hash, and the number of values that can follow
// it. ok is false if the hash is not a value of this chain, or is the secret.
func (c *Chain) Opening(hash [32]byte) (opening [32]byte, left int, ok bool) {
	for _, i := range []int{c.at, c.at - 1} { // a repeated request, or the next value
		if i >= 0 && c.value(i) == hash {
			return c.open(i)
		}
	}
	value := c.marks[0]
	for i := range c.links + 1 {
		if value == hash {
			return c.open(i)
		}
		value = sha256.Sum256(value[:])
	}
	return [32]byte{}, 0, false
}

// open returns the value whose SHA-256 is value number i.
func (c *Chain) open(i int) (opening [32]byte, left int, ok bool) {
	c.at = i
	if i == 0 {
		return [32]byte{}, 0, false
	}
	return c.value(i - 1), i - 1, true
}

// value returns value number i, from 0 to links.
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
