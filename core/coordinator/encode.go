package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/psyche-go/psyche/core/bloom"
)

// Sizes of encoded parts.
const (
	filterSize  = bloom.Bits / 8
	clientSize  = 32 + 1 + 8 + 4 + 4 + 32 + 1 + 4 + 3 + 3 + 4 + 2 + 4 // plus a digest if the client reported one
	witnessSize = 2 + 2*filterSize + 32 + 32 + 2 + 4
	roundSize   = 4 + 4 + 8 + 8 + 8 + 4 + 8 + 2 + 2 + 2*MaxClients/8 + 2 + 2 + 2 + 32 // without the lists
	trialSize   = 1 + 32 + 32 + 4 + 1 + 4 + 8 + 3
	stretchSize = 8 + 8 + 1
	markSize    = 4 + 8

	authorizationSize = 32 + 4 + 8 + 2 // without the delegates
	ejectionSize      = 32 + 4 + 1

	recordedSize    = 4 + 32
	uploadSize      = 32 + 4 + 32 + 1 + 1 + 1 + 4 + 1 // without the texts
	rollbackGapSize = 4 + 4
)

// maxModelSize is the size of a model with the longest texts and the largest definition.
const maxModelSize = 4 + 4 + 1 + 1 + 1 + MaxRepoLength + 32 + 4 + 1 + 2 + MaxDefinitionSize

// MaxUpdateConfigSize is the largest number of bytes that UpdateConfig.AppendTo appends.
const MaxUpdateConfigSize = configSize + maxModelSize

// MaxStateSize is the largest number of bytes that AppendTo appends.
const MaxStateSize = 1 + 1 + MaxRunIDLength + 32 + 1 + 8 + configSize + maxModelSize +
	32 + 32 + 8 + 8 + 1 + 4 + 2 + MaxAuthorizations*(authorizationSize+MaxDelegates*32) + 2 + MaxEjections*ejectionSize +
	4 + 4 + 8 + // progress
	4 + 4 + 8 + 1 + 5*2 + recordedSize + // epoch and lengths of all lists
	4*MaxClients*(clientSize+32) + MaxClients*32 +
	1 + StoredRounds*(roundSize+MaxClients*(32+1)+MaxWitnesses*witnessSize+MaxRetries*stretchSize) +
	8 + 3*32 + 8 + 4 +
	4 + 4*2 + MaxEarlier*recordedSize + MaxUploads*(uploadSize+MaxRepoLength) + MaxRollbackGaps*rollbackGapSize + MaxTrials*trialSize +
	8 + 2*2 + MaxLost*stretchSize + MaxMarks*markSize

// AppendTo appends the canonical bytes of the state to b: a version byte, then every field in the
// order of declaration. Integers are little endian and of fixed width; a length precedes each list
// and text. Equal states have equal bytes.
func (s *State) AppendTo(b []byte) []byte {
	c := coder{bytes: b}
	c.state(s)
	return c.bytes
}

// Hash returns the SHA-256 of the state's canonical bytes.
func (s *State) Hash() [32]byte { return sha256.Sum256(s.AppendTo(nil)) }

// AppendTo appends the canonical bytes of configuration and model to b.
func (u *UpdateConfig) AppendTo(b []byte) []byte {
	c := coder{bytes: b}
	c.config(&u.Config)
	c.model(&u.Model)
	return c.bytes
}

// decodeError locates the invalid bytes of a state. It wraps ErrMalformed.
type decodeError struct {
	Field   string
	Offset  int   // of the first byte after the last decoded field
	Version uint8 // of the encoding, if it is an earlier version; else 0
}

// Error names the field and the offset. For an earlier encoding it also names the remedy.
func (e *decodeError) Error() string {
	if e.Version != 0 {
		return "state has encoding version " + strconv.Itoa(int(e.Version)) + ", this program reads version " + strconv.Itoa(EncodingVersion) +
			": continue with the program that wrote it, or begin a new run from its checkpoint"
	}
	return "malformed state: invalid " + e.Field + " before byte " + strconv.Itoa(e.Offset)
}

// Unwrap returns ErrMalformed.
func (e *decodeError) Unwrap() error { return ErrMalformed }

// Decode reads a state from its canonical bytes. It returns a *decodeError for bytes that
// AppendTo does not write, and for a state that breaks an invariant (see Check). It allocates
// a list only after it has verified that the bytes of the list are there.
func Decode(b []byte) (State, error) {
	var once Decoder
	return once.Decode(b)
}

// Decoder decodes successive states of a run. It refuses the same bytes as Decode and costs
// less: it computes the witnesses of a round once, not at each change of the round. The zero
// Decoder is ready to use. Its states share no memory.
type Decoder struct {
	elections [StoredRounds]election
	oldest    int // index in elections of the oldest, which is replaced next
}

// election contains a result of assign.Witnesses with its inputs.
type election struct {
	seed           uint64
	members, nodes int
	elected        MemberSet
}

// elected returns the members that witness a round.
func (d *Decoder) elected(r *Round, c Config) MemberSet {
	e := election{seed: r.Seed, members: len(r.Members), nodes: int(c.WitnessNodes)}
	for i := range d.elections {
		if known := &d.elections[i]; known.seed == e.seed && known.members == e.members && known.nodes == e.nodes {
			return known.elected
		}
	}
	e.elected = r.electedSet(c)
	d.elections[d.oldest] = e
	d.oldest = (d.oldest + 1) % StoredRounds
	return e.elected
}

// Decode decodes the bytes as the function Decode does.
func (d *Decoder) Decode(b []byte) (State, error) {
	c := coder{bytes: b, reads: true}
	var s State
	c.state(&s)
	if err := c.end(); err != nil {
		return State{}, err
	}
	if broken := s.brokenInvariant(d.elected); broken != "" {
		return State{}, &decodeError{Field: broken, Offset: len(b)}
	}
	return s, nil
}

// DecodeUpdateConfig reads the bytes that UpdateConfig.AppendTo wrote. It returns a *decodeError for
// all other bytes. It does not check whether the values are valid; Apply does.
func DecodeUpdateConfig(b []byte) (UpdateConfig, error) {
	c := coder{bytes: b, reads: true}
	var u UpdateConfig
	c.config(&u.Config)
	c.model(&u.Model)
	if err := c.end(); err != nil {
		return UpdateConfig{}, err
	}
	return u, nil
}

var le = binary.LittleEndian

// coder encodes or decodes fields, so that one list of fields is both the encoder and the decoder.
// After its first error, a decoding coder leaves fields unchanged. An encoding coder never changes
// fields.
type coder struct {
	bytes []byte
	at    int // next byte to decode
	reads bool
	err   error
}

func (c *coder) fail(field string) {
	if c.err == nil {
		c.err = &decodeError{Field: field, Offset: c.at}
	}
}

// check fails if a decoding coder finds a value that is never encoded.
func (c *coder) check(ok bool, field string) {
	if c.reads && !ok {
		c.fail(field)
	}
}

// end returns the error of a coder that has decoded all fields.
func (c *coder) end() error {
	c.check(c.at == len(c.bytes), "end")
	return c.err
}

// take returns the next n bytes, or nil after an error.
func (c *coder) take(n int, field string) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.bytes)-c.at {
		c.fail(field)
		return nil
	}
	c.at += n
	return c.bytes[c.at-n : c.at : c.at]
}

// raw encodes or decodes a fixed number of bytes.
func (c *coder) raw(v []byte, field string) {
	if c.reads {
		copy(v, c.take(len(v), field))
	} else {
		c.bytes = append(c.bytes, v...)
	}
}

func (c *coder) uint8(v *uint8, field string) {
	if !c.reads {
		c.bytes = append(c.bytes, *v)
	} else if b := c.take(1, field); b != nil {
		*v = b[0]
	}
}

func (c *coder) uint16(v *uint16, field string) {
	if !c.reads {
		c.bytes = le.AppendUint16(c.bytes, *v)
	} else if b := c.take(2, field); b != nil {
		*v = le.Uint16(b)
	}
}

func (c *coder) uint32(v *uint32, field string) {
	if !c.reads {
		c.bytes = le.AppendUint32(c.bytes, *v)
	} else if b := c.take(4, field); b != nil {
		*v = le.Uint32(b)
	}
}

func (c *coder) uint64(v *uint64, field string) {
	if !c.reads {
		c.bytes = le.AppendUint64(c.bytes, *v)
	} else if b := c.take(8, field); b != nil {
		*v = le.Uint64(b)
	}
}

func (c *coder) bool(v *bool, field string) {
	bits := flags(*v, false)
	c.uint8(&bits, field)
	c.check(bits <= 1, field)
	if c.reads {
		*v = bits == 1
	}
}

// text8 encodes or decodes a text whose length fits one byte.
func (c *coder) text8(v *string, field string, limit int) {
	n := uint8(len(*v))
	c.uint8(&n, field)
	c.check(int(n) <= limit, field)
	if c.reads {
		*v = string(c.take(int(n), field))
	} else {
		c.bytes = append(c.bytes, *v...)
	}
}

// length encodes or decodes the length of a list of at most limit elements. When decoding, it
// verifies that the list's bytes are there, at least elementSize per element.
func (c *coder) length(n int, field string, limit, elementSize int) int {
	short := uint16(n)
	c.uint16(&short, field)
	c.check(int(short) <= limit && int(short)*elementSize <= len(c.bytes)-c.at, field)
	if c.err != nil {
		return 0
	}
	return int(short)
}

// moveList encodes or decodes the elements of a list. See length for limit and elementSize.
func moveList[T any](c *coder, v *[]T, field string, limit, elementSize int, element func(*T)) {
	if n := c.length(len(*v), field, limit, elementSize); c.reads && n > 0 {
		*v = make([]T, n)
	}
	for i := range *v {
		element(&(*v)[i])
	}
}

func (c *coder) ids(v *[]ClientID, field string, limit int) {
	const size = len(ClientID{})
	if n := c.length(len(*v), field, limit, size); c.reads && n > 0 {
		*v = make([]ClientID, n)
	}
	for i := range *v {
		c.raw((*v)[i][:], field)
	}
}

func (c *coder) filter(filter *bloom.Filter) {
	if !c.reads {
		b := c.bytes
		for _, word := range filter {
			b = le.AppendUint64(b, word)
		}
		c.bytes = b
		return
	}
	words := c.take(filterSize, "filter")
	for i := range len(words) / 8 {
		filter[i] = le.Uint64(words[8*i:])
	}
}

func flags(bit0, bit1 bool) byte {
	var b byte
	if bit0 {
		b |= 1
	}
	if bit1 {
		b |= 2
	}
	return b
}
