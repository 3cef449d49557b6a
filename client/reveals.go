package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

const (
	// domainSecrets keeps what a key's secrets are derived for apart.
	domainSecrets = "psyche/secrets/v1"
	// domainSalts keeps the salts of verdicts apart from the values.
	domainSalts = "psyche/secrets/verdict/v1"
	// searchedEpochs is for how many epochs back a value is looked for to which an earlier process
	// has committed. Members commit anew in every epoch, and who waits does so for one at most.
	searchedEpochs = 8
	// secretsOfEpoch is how many values a client has for each epoch.
	secretsOfEpoch = 1 << 12
	// rememberedSecrets bounds what this process remembers of its own.
	rememberedSecrets = 64
)

// reveals are the values to which this client commits for the draws of the run, and which it
// reveals when it is ready. They follow from its key, so that it finds them again after a restart.
type reveals struct {
	secret [32]byte
	next   [32]byte               // newest commitment of this process, to what it never revealed
	values map[[32]byte]*[32]byte // by commitment; nil: it was looked for in vain
}

func newReveals(key identity.Key, run [32]byte) reveals {
	mac := hmac.New(sha256.New, key.Private().Seed())
	mac.Write(append([]byte(domainSecrets), run[:]...))
	return reveals{secret: [32]byte(mac.Sum(nil)), values: make(map[[32]byte]*[32]byte)}
}

// value returns one of the secretsOfEpoch values of an epoch.
func (r *reveals) value(epoch uint32, number uint16) [32]byte {
	b := binary.LittleEndian.AppendUint32(r.secret[:], epoch)
	return sha256.Sum256(binary.LittleEndian.AppendUint16(b, number))
}

// salt returns what this client seals the verdict of a step with.
func (r *reveals) salt(step uint32) [32]byte {
	return sha256.Sum256(binary.LittleEndian.AppendUint32(append([]byte(domainSalts), r.secret[:]...), step))
}

// commitment returns the commitment for the next time, which stays the same until ready has used
// it. Which value of the epoch it is of follows from the time, so that a restarted client hardly
// ever takes one again that it has revealed.
func (r *reveals) commitment(epoch uint32, now time.Time) [32]byte {
	if r.next == ([32]byte{}) {
		if len(r.values) >= rememberedSecrets {
			clear(r.values) // whatever is still wanted is found again
		}
		var value [32]byte
		for number, taken := now.UnixMilli(), true; taken; number++ {
			value = r.value(epoch, uint16(number%secretsOfEpoch))
			r.next = sha256.Sum256(value[:])
			_, taken = r.values[r.next]
		}
		r.values[r.next] = &value
	}
	return r.next
}

// opens reports whether this client can reveal what it committed to, as the state has it.
func (r *reveals) opens(c *coordinator.Client, epoch uint32) bool {
	_, ok := r.open(c.Commitment, epoch)
	return ok
}

// open returns the value of a commitment.
func (r *reveals) open(commitment [32]byte, epoch uint32) (value [32]byte, ok bool) {
	if commitment == ([32]byte{}) {
		return value, true
	}
	known, searched := r.values[commitment]
	if !searched {
		known = r.search(commitment, epoch)
		r.values[commitment] = known
	}
	if known == nil {
		return value, false
	}
	return *known, true
}

// search looks for a value to which an earlier process of this key committed.
func (r *reveals) search(commitment [32]byte, epoch uint32) *[32]byte {
	for back := range min(searchedEpochs, epoch+1) {
		for number := range uint16(secretsOfEpoch) {
			value := r.value(epoch-back, number)
			if sha256.Sum256(value[:]) == commitment {
				return &value
			}
		}
	}
	return nil
}

// ready returns what says that a member holds the epoch's model; ok is false when it cannot reveal
// what it committed to.
func (r *reveals) ready(member *coordinator.Client, epoch uint32, now time.Time) (a coordinator.Ready, ok bool) {
	if a.Reveal, ok = r.open(member.Commitment, epoch); !ok {
		return a, false
	}
	if member.Commitment == r.next {
		r.next = [32]byte{}
	}
	a.Epoch, a.Next = epoch, r.commitment(epoch, now)
	return a, true
}
