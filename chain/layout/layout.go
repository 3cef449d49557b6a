package layout

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// Size is the number of bytes of a state.
	Size = 338_488

	// Version is that of the state's encoding in Go, whose fields the account has.
	Version = 11

	magic = "psyche1\x00"
)

var le = binary.LittleEndian

// Append appends the account of a state that obeys coordinator's invariants to b. Its sequence
// number, which is no part of the state, is 0. A run on a chain has no DrawCommitment, and an
// account no place for one.
func Append(b []byte, s *coordinator.State) []byte {
	n := len(b)
	b = slices.Grow(b, Size)[:n+Size]
	clear(b[n:])
	a := account{bytes: b[n:]}
	a.state(s)
	return b
}

// decode reads the state of an account and checks its invariants. It does not read what
// follows from the rest.
func decode(b []byte) (coordinator.State, error) {
	if len(b) < Size {
		return coordinator.State{}, fmt.Errorf("account of a run: has %d bytes, a state has %d", len(b), Size)
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

// account goes through the bytes of an account. It reads the fields that it is given, or writes
// them, so that both directions are one description; when it writes it changes no field.
type account struct {
	bytes []byte
	at    int
	reads bool
	err   error // the first one of reading; afterwards every field reads as zero
}

func (a *account) fail(field string) {
	if a.err == nil {
		a.err = fmt.Errorf("account of a run: %s at byte %d cannot be: is it of this program's version, %d?", field, a.at, Version)
	}
}

// next returns the bytes of a field. After an error these are some of zeros.
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

// count moves a length of 32 bits that is at most limit.
func (a *account) count(n, limit int, field string) int {
	v := uint32(n)
	a.uint32(&v)
	if int64(v) > int64(limit) {
		a.fail(field)
		return 0
	}
	return int(v)
}

// list visits the elements of a list, of which there are n in a place for limit.
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

// set writes the set of members that follows from other fields.
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

// kind moves a kind of checkpoint, whose type is not uint8.
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

// places returns where in a list a client is, from 1.
func places[T any](l []T, id func(*T) coordinator.ClientID) map[coordinator.ClientID]int {
	m := make(map[coordinator.ClientID]int, len(l))
	for i := range l {
		m[id(&l[i])] = i + 1
	}
	return m
}
