package core

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// searchedEpochs is the number of past epochs in which to search for the committed value of an
	// earlier process. Members commit again in every epoch, and a pending client does so for at
	// most one epoch.
	searchedEpochs = 8
	// chainsOfEpoch is the number of hash chains of a client for each epoch, and linksOfChain the
	// number of values in each: one for every proof of a witness, and one for the next epoch.
	chainsOfEpoch = 64
	linksOfChain  = 2048
	// rememberedChains limits the cache of this process.
	rememberedChains = 1024
)

// commitments contains the values that this member commits to for the draws of the run. They form
// hash chains. The member reveals one value when it is ready and, in a run with audits, another with
// each proof. They are derived from a secret of its key, so that it finds them again after a restart.
type commitments struct {
	secret [32]byte
	next   [32]byte         // newest commitment of this process, to a value not yet revealed
	used   map[chainOf]bool // chains that this process committed to
	chains map[chainOf]*hashchain.Chain
	found  map[[32]byte]*hashchain.Chain // results of searches by commitment; nil: not found
}

// chainOf identifies a chain.
type chainOf struct {
	epoch  uint32
	number uint8
}

// newCommitments returns the commitments of a secret, which is different for each key and each run.
func newCommitments(secret [32]byte) commitments {
	return commitments{
		secret: secret, used: make(map[chainOf]bool),
		chains: make(map[chainOf]*hashchain.Chain), found: make(map[[32]byte]*hashchain.Chain),
	}
}

// chain returns one of the chains of an epoch.
func (r *commitments) chain(of chainOf) *hashchain.Chain {
	c := r.chains[of]
	if c == nil {
		if len(r.chains) >= rememberedChains {
			clear(r.chains) // chains that are still needed are found again
		}
		b := binary.LittleEndian.AppendUint32(r.secret[:], of.epoch)
		c = hashchain.New(sha256.Sum256(append(b, of.number)), linksOfChain)
		r.chains[of] = c
	}
	return c
}

// commitment returns the next commitment, which stays the same until ready has used it. The time
// determines the chain, so that a restarted client almost never reuses a chain with a revealed
// value.
func (r *commitments) commitment(epoch uint32, now time.Time) [32]byte {
	if r.next != [32]byte{} {
		return r.next
	}
	if len(r.used) >= rememberedChains {
		clear(r.used)
	}
	first := now.UnixMilli()
	for number := first; ; number++ {
		of := chainOf{epoch, uint8(number % chainsOfEpoch)}
		if !r.used[of] || number-first >= chainsOfEpoch {
			c := r.chain(of)
			r.used[of] = true
			r.next = c.Commitment()
			r.remember(r.next, c)
			return r.next
		}
	}
}

func (r *commitments) remember(commitment [32]byte, c *hashchain.Chain) {
	if len(r.found) >= rememberedChains {
		clear(r.found)
	}
	r.found[commitment] = c
}

// opens reports whether this member can reveal the value of its commitment in the state.
func (r *commitments) opens(c *coordinator.Client, epoch uint32) bool {
	_, _, ok := r.open(c.Commitment, epoch)
	return ok
}

// open returns the value of a commitment, and the number of values left after it.
func (r *commitments) open(commitment [32]byte, epoch uint32) (value [32]byte, left int, ok bool) {
	if commitment == [32]byte{} {
		return value, 0, true
	}
	c, searched := r.found[commitment]
	if !searched {
		c = r.search(commitment, epoch)
		r.remember(commitment, c)
	}
	if c == nil {
		return value, 0, false
	}
	value, left, ok = c.Opening(commitment)
	if ok && left > 0 {
		r.remember(value, c)
	}
	return value, left, ok
}

// search looks for the chain of a value that an earlier process of this key committed to.
func (r *commitments) search(commitment [32]byte, epoch uint32) *hashchain.Chain {
	for back := range min(searchedEpochs, epoch+1) {
		for number := range uint8(chainsOfEpoch) {
			c := r.chain(chainOf{epoch - back, number})
			if _, _, ok := c.Opening(commitment); ok {
				return c
			}
		}
	}
	return nil
}

// withProof returns the value that a witness reveals with its proof. It is zero if there is none,
// or if it would be the last value, which the member needs in the next epoch.
func (r *commitments) withProof(member *coordinator.Client, epoch uint32) [32]byte {
	value, left, ok := r.open(member.Commitment, epoch)
	if !ok || left == 0 {
		return [32]byte{}
	}
	if member.Commitment == r.next {
		r.next = [32]byte{} // other members know the values from now on
	}
	return value
}

// ready returns the action that reports that a member holds the epoch's model. ok is false if it
// cannot reveal the value of its commitment.
func (r *commitments) ready(member *coordinator.Client, epoch uint32, now time.Time) (a coordinator.Ready, ok bool) {
	if a.Reveal, _, ok = r.open(member.Commitment, epoch); !ok {
		return a, false
	}
	if member.Commitment == r.next {
		r.next = [32]byte{}
	}
	a.Epoch, a.Next = epoch, r.commitment(epoch, now)
	return a, true
}
