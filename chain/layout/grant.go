package layout

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// MaxGrantDelegates limits the delegates of a grant. A run admits as many keys at the same time.
	MaxGrantDelegates = coordinator.MaxAuthorizations

	// GrantorOffset is the offset of the grantor's key in a grant's account.
	GrantorOffset = 16

	grantDelegates = 80
)

// GrantSize returns the size in bytes of the account of a grant that has space for a number of
// delegates.
func GrantSize(delegates int) int { return grantDelegates + delegates*keySize }

// Grant is an account that authorizes the grantee and its delegates for all runs whose join
// authority is the grantor.
type Grant struct {
	Grantor, Grantee [32]byte
	Delegates        [][32]byte
	Room             int // number of delegates for which the account has space
}

// ReadGrant parses a grant's account.
func ReadGrant(b []byte) (Grant, error) {
	room := (len(b) - grantDelegates) / keySize
	if len(b) < grantDelegates || len(b) != GrantSize(room) || room > MaxGrantDelegates {
		return Grant{}, fmt.Errorf("account of a grant: %d bytes, want %d to %d, in steps of %d", len(b), GrantSize(0), GrantSize(MaxGrantDelegates), keySize)
	}
	if err := checkMagic(b, GrantMagic, "a grant"); err != nil {
		return Grant{}, err
	}
	count := le.Uint32(b[12:])
	if int64(count) > int64(room) {
		return Grant{}, fmt.Errorf("account of a grant: %d delegates, but space for %d", count, room)
	}
	g := Grant{Grantor: [32]byte(b[GrantorOffset:]), Grantee: [32]byte(b[48:]), Room: room}
	for i := range int(count) {
		g.Delegates = append(g.Delegates, [32]byte(b[grantDelegates+i*keySize:]))
	}
	if rest := b[GrantSize(int(count)):]; !bytes.Equal(rest, make([]byte, len(rest))) {
		return Grant{}, fmt.Errorf("account of a grant: data after its %d delegates", count)
	}
	return g, nil
}

// AppendGrant appends a grant's account to b, as the program writes it.
func AppendGrant(b []byte, g *Grant) []byte {
	n, size := len(b), GrantSize(g.Room)
	b = slices.Grow(b, size)[:n+size]
	a := b[n:]
	clear(a)
	copy(a, GrantMagic)
	le.PutUint32(a[8:], accountVersion)
	le.PutUint32(a[12:], uint32(len(g.Delegates)))
	copy(a[GrantorOffset:], g.Grantor[:])
	copy(a[48:], g.Grantee[:])
	for i, delegate := range g.Delegates {
		copy(a[grantDelegates+i*keySize:], delegate[:])
	}
	return b
}

// Covers reports whether the grant authorizes a key.
func (g *Grant) Covers(key [32]byte) bool {
	return key == g.Grantee || slices.Contains(g.Delegates, key)
}
