package core

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

func TestNames(t *testing.T) {
	n, s := Names{}, &coordinator.State{}
	ada := coordinator.ClientID{1}
	call := func(name string) { n.Note(ada, coordinator.Join{Name: name}, s) }
	call("Ada")
	n.Note(ada, coordinator.Ready{}, s)
	if n[identity.ID(ada)] != "Ada" {
		t.Errorf("got %v; want n[identity.ID(ada)] == \"Ada\"", n)
	}
	call("Lovelace")
	if n[identity.ID(ada)] != "Lovelace" {
		t.Errorf("after another Join: %v", n)
	}
	for _, none := range []string{"", "\x1b[2J", "a\u202eb"} {
		call("Ada")
		if call(none); len(n) != 0 {
			t.Errorf("after a Join with the name %q: %v", none, n)
		}
	}
}

// TestNamesAreBounded lets more keys join than a run can contain. It checks that the names of keys
// without a seat are forgotten.
func TestNamesAreBounded(t *testing.T) {
	n, s := Names{}, &coordinator.State{}
	s.Pending = []coordinator.Client{{ID: coordinator.ClientID{0, 0, 1}}}
	for i := range 3 * MaxNames {
		n.Note(coordinator.ClientID{byte(i), byte(i >> 8), 1}, coordinator.Join{Name: fmt.Sprint(i)}, s)
		if len(n) > MaxNames {
			t.Fatalf("%d names", len(n))
		}
	}
	if n[identity.ID{0, 0, 1}] != "0" {
		t.Error("the name of the pending client is forgotten")
	}
}
