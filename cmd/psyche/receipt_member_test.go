package main

import (
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
)

// TestMemberCalled checks which member a name or the beginning of a key selects, and that a text that fits several members is
// an error.
func TestMemberCalled(t *testing.T) {
	id := func(n byte) identity.ID { return identity.FromSeed([identity.SeedSize]byte{n}).ID() }
	names := map[identity.ID]string{id(1): "Ada", id(2): "Bob", id(3): "Bob", id(4): ""}
	names[id(5)] = id(4).String()[:8] // its name looks like another member's key
	for text, want := range map[string]identity.ID{"Ada": id(1), id(2).String()[:8]: id(2), id(3).String()[:4]: id(3)} {
		if got, err := memberCalled(text, names); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for name, text := range map[string]string{"the name of two": "Bob", "a key and a name": id(4).String()[:8], "no member": "Eve", "too short": id(4).String()[:3], "no text": " "} {
		_, err := memberCalled(text, names)
		golden.Message(t, name, err)
	}
}
