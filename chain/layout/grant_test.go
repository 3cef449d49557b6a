package layout

import (
	"bytes"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
)

func testGrant() Grant {
	return Grant{Grantor: [32]byte{1}, Grantee: [32]byte{2}, Delegates: [][32]byte{{3}, {4}}, Room: 3}
}

func TestGrants(t *testing.T) {
	for _, delegates := range [][][32]byte{nil, {{3}}, {{3}, {4}, {5}}} {
		g := testGrant()
		g.Delegates = delegates
		b := AppendGrant([]byte("before"), &g)[len("before"):]
		read, err := ReadGrant(b)
		if err != nil || len(b) != GrantSize(3) || read.Grantor != g.Grantor || read.Grantee != g.Grantee || !slices.Equal(read.Delegates, delegates) || read.Room != 3 {
			t.Errorf("%d delegates: read %+v %v", len(delegates), read, err)
		}
		for key, want := range map[[32]byte]bool{{1}: false, {2}: true, {3}: len(delegates) > 0, {5}: len(delegates) > 2, {9}: false, {}: false} {
			if read.Covers(key) != want {
				t.Errorf("%d delegates: key %x is covered: %t", len(delegates), key[:1], !want)
			}
		}
	}
	good := testGrant()
	for name, change := range map[string]func([]byte) []byte{
		"no bytes":           func([]byte) []byte { return nil },
		"a part of its head": func(b []byte) []byte { return b[:GrantSize(0)-1] },
		"a byte less":        func(b []byte) []byte { return b[:len(b)-1] },
		"a byte more":        func(b []byte) []byte { return append(b, 0) },
		"too much space":     func(b []byte) []byte { return append(b, make([]byte, GrantSize(MaxGrantDelegates)-GrantSize(2))...) },
		"zeros":              func(b []byte) []byte { clear(b); return b },
		"a run":              func(b []byte) []byte { copy(b, RunMagic); return b },
		"freed":              func(b []byte) []byte { copy(b, FreedMagic); return b },
		"a newer one":        func(b []byte) []byte { b[8]++; return b },
		"too many delegates": func(b []byte) []byte { b[12] = 4; return b },
		"a huge number":      func(b []byte) []byte { b[15] = 255; return b },
		"too few delegates":  func(b []byte) []byte { b[12]--; return b },
		"bytes behind":       func(b []byte) []byte { b[len(b)-1] = 1; return b },
	} {
		if _, err := ReadGrant(change(AppendGrant(nil, &good))); err == nil {
			t.Errorf("a grant with %s is accepted", name)
		}
	}
}

// FuzzReadGrant checks that an accepted account has only one encoding.
func FuzzReadGrant(f *testing.F) {
	g := testGrant()
	f.Add(AppendGrant(nil, &g))
	f.Add(AppendGrant(nil, &Grant{}))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		read, err := ReadGrant(b)
		if err != nil {
			return
		}
		if again := AppendGrant(nil, &read); !bytes.Equal(again, b) {
			t.Errorf("%x was decoded, but is encoded as %x", b, again)
		}
	})
}
