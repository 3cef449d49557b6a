package layout

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// Size is the size of a state in bytes.
	Size = 344_472

	// Version is the version of the state's Go encoding, whose fields the account contains.
	Version = coordinator.EncodingVersion

	magic = "psyche1\x00"
)

var le = binary.LittleEndian

// Append appends the account encoding of a state that satisfies coordinator's invariants to b. The
// sequence number, which is not part of the state, is 0. DrawCommitment is not encoded, because
// runs on a chain have none.
func Append(b []byte, s *coordinator.State) []byte {
	n := len(b)
	b = slices.Grow(b, Size)[:n+Size]
	clear(b[n:])
	a := account{bytes: b[n:]}
	a.state(s)
	return b
}

// decode parses the state in an account and checks its invariants. It ignores derived fields.
func decode(b []byte) (coordinator.State, error) {
	if len(b) < Size {
		return coordinator.State{}, fmt.Errorf("account of a run: %d bytes, but a state has %d", len(b), Size)
	}
	a := account{bytes: b[:Size], reads: true}
	var s coordinator.State
	a.state(&s)
	if a.err != nil {
		return coordinator.State{}, a.err
	}
	if err := s.Check(); err != nil {
		return coordinator.State{}, fmt.Errorf("account of a run: %w", err)
	}
	return s, nil
}

// account visits the bytes of an account in order. Depending on its mode, it reads into the given
// fields or writes them, so that one description defines both directions. In write mode it modifies
// no field.
type account struct {
	bytes []byte
	at    int
	reads bool
	err   error // first read error; afterwards every field reads as zero
}

func (a *account) fail(field string) {
	if a.err == nil {
		a.err = fmt.Errorf("account of a run: invalid %s at byte %d; check that the account has version %d", field, a.at, Version)
	}
}

// next returns the bytes of a field, or zeros after an error.
func (a *account) next(n int) []byte {
	b := a.bytes[a.at : a.at+n]
	a.at += n
	if a.err != nil {
		return make([]byte, n)
	}
	return b
}

func (a *account) skip(n int) { a.at += n }

// move copies between a field and the account.
func (a *account) move(field []byte) {
	if b := a.next(len(field)); a.reads {
		copy(field, b)
	} else {
		copy(b, field)
	}
}

func (a *account) key(v *[32]byte)            { a.move(v[:]) }
func (a *account) id(v *coordinator.ClientID) { a.move(v[:]) }

func (a *account) uint8(v *uint8) {
	if b := a.next(1); a.reads {
		*v = b[0]
	} else {
		b[0] = *v
	}
}

func (a *account) uint16(v *uint16) {
	if b := a.next(2); a.reads {
		*v = le.Uint16(b)
	} else {
		le.PutUint16(b, *v)
	}
}

func (a *account) uint32(v *uint32) {
	if b := a.next(4); a.reads {
		*v = le.Uint32(b)
	} else {
		le.PutUint32(b, *v)
	}
}

func (a *account) uint64(v *uint64) {
	if b := a.next(8); a.reads {
		*v = le.Uint64(b)
	} else {
		le.PutUint64(b, *v)
	}
}

func (a *account) bool(v *bool, field string) {
	var b uint8
	if *v {
		b = 1
	}
	a.uint8(&b)
	if b > 1 {
		a.fail(field)
	}
	if a.reads {
		*v = b == 1
	}
}

// count moves a 32-bit length of at most limit.
func (a *account) count(n, limit int, field string) int {
	v := uint32(n)
	a.uint32(&v)
	if int64(v) > int64(limit) {
		a.fail(field)
		return 0
	}
	return int(v)
}

// list visits the n elements of a list, which has space for limit elements.
func list[T any](a *account, l *[]T, n, limit, size int, visit func(*T)) {
	begin := a.at
	if a.reads && n > 0 {
		*l = make([]T, n)
	}
	for i := range *l {
		a.at = begin + i*size
		visit(&(*l)[i])
	}
	a.at = begin + limit*size
}

// set writes a derived set of members.
func (a *account) set(members func() []int) {
	b := a.next(coordinator.MaxClients / 8)
	if a.reads {
		return
	}
	for _, member := range members() {
		b[member/8] |= 1 << (member % 8)
	}
}

func (a *account) names(repo, revision *string, repoLength, revisionLength int) {
	b := []byte(*repo + *revision)
	if a.reads {
		b = make([]byte, repoLength+revisionLength)
	}
	if len(b) > coordinator.MaxRepoLength {
		a.fail("names")
		b = nil
	} else {
		a.move(b)
	}
	a.skip(coordinator.MaxRepoLength - len(b))
	if a.reads && b != nil {
		*repo, *revision = string(b[:repoLength]), string(b[repoLength:])
	}
}

// kind moves a checkpoint kind, whose type is not uint8.
func (a *account) kind(v *coordinator.CheckpointKind) { a.uint8((*uint8)(v)) }

func (a *account) lengths(texts ...string) []int {
	lengths := make([]int, len(texts))
	for i, text := range texts {
		n := uint8(len(text))
		a.uint8(&n)
		lengths[i] = int(n)
	}
	return lengths
}

// places returns each client's position in a list, starting at 1.
func places[T any](l []T, id func(*T) coordinator.ClientID) map[coordinator.ClientID]int {
	m := make(map[coordinator.ClientID]int, len(l))
	for i := range l {
		m[id(&l[i])] = i + 1
	}
	return m
}
