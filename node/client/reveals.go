package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// domainSecrets keeps what a key's secrets are derived for apart.
	domainSecrets = "psyche/secrets/v1"
	// searchedEpochs is for how many epochs back a value is looked for to which an earlier process
	// has committed. Members commit anew in every epoch, and a waiting client does so for one epoch at most.
	searchedEpochs = 8
	// chainsOfEpoch is how many chains of values a client has for each epoch, and linksOfChain how many
	// values each has: one for every proof of a witness, and one for the next epoch.
	chainsOfEpoch = 64
	linksOfChain  = 2048
	// rememberedChains bounds what this process remembers.
	rememberedChains = 1024
)

// reveals are the values to which this client commits for the draws of the run: chains of them, of
// which it reveals one value when it is ready, and another with each proof in a run with audits. They
// follow from its key, so that it finds them again after a restart.
type reveals struct {
	secret [32]byte
	next   [32]byte         // newest commitment of this process, to what it never revealed
	used   map[chainOf]bool // that this process committed to
	chains map[chainOf]*hashchain.Chain
	found  map[[32]byte]*hashchain.Chain // by commitment: newest looked for; nil: in vain
}

// chainOf names a chain.
type chainOf struct {
	epoch  uint32
	number uint8
}

func newReveals(key identity.Key, run [32]byte) reveals {
	mac := hmac.New(sha256.New, key.Private().Seed())
	mac.Write(append([]byte(domainSecrets), run[:]...))
	return reveals{
		secret: [32]byte(mac.Sum(nil)), used: make(map[chainOf]bool),
		chains: make(map[chainOf]*hashchain.Chain), found: make(map[[32]byte]*hashchain.Chain),
	}
}

// chain returns one of the chains of an epoch.
func (r *reveals) chain(of chainOf) *hashchain.Chain {
	c := r.chains[of]
	if c == nil {
		if len(r.chains) >= rememberedChains {
			clear(r.chains) // whatever is still wanted is found again
		}
		b := binary.LittleEndian.AppendUint32(r.secret[:], of.epoch)
		c = hashchain.New(sha256.Sum256(append(b, of.number)), linksOfChain)
		r.chains[of] = c
	}
	return c
}

// commitment returns the commitment for the next time, which stays the same until ready has used
// it. Which chain of the epoch it is of follows from the time, so that a restarted client hardly
// ever takes one again of which it has revealed something.
func (r *reveals) commitment(epoch uint32, now time.Time) [32]byte {
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

func (r *reveals) remember(commitment [32]byte, c *hashchain.Chain) {
	if len(r.found) >= rememberedChains {
		clear(r.found)
	}
	r.found[commitment] = c
}

// opens reports whether this client can reveal what it committed to, as the state has it.
func (r *reveals) opens(c *coordinator.Client, epoch uint32) bool {
	_, _, ok := r.open(c.Commitment, epoch)
	return ok
}

// open returns the value of a commitment, and how many more can follow it.
func (r *reveals) open(commitment [32]byte, epoch uint32) (value [32]byte, left int, ok bool) {
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

// search looks for the chain of a value to which an earlier process of this key committed.
func (r *reveals) search(commitment [32]byte, epoch uint32) *hashchain.Chain {
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

// withProof returns what a witness reveals with its proof: nothing where it cannot, or where that
// would be the last value, which it needs in the next epoch.
func (r *reveals) withProof(member *coordinator.Client, epoch uint32) [32]byte {
	value, left, ok := r.open(member.Commitment, epoch)
	if !ok || left == 0 {
		return [32]byte{}
	}
	if member.Commitment == r.next {
		r.next = [32]byte{} // others know the values from now on
	}
	return value
}

// ready returns what says that a member holds the epoch's model; ok is false when it cannot reveal
// what it committed to.
func (r *reveals) ready(member *coordinator.Client, epoch uint32, now time.Time) (a coordinator.Ready, ok bool) {
	if a.Reveal, _, ok = r.open(member.Commitment, epoch); !ok {
		return a, false
	}
	if member.Commitment == r.next {
		r.next = [32]byte{}
	}
	a.Epoch, a.Next = epoch, r.commitment(epoch, now)
	return a, true
}
