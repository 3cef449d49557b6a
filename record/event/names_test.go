package event

import (
	"reflect"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
)

// TestNames checks that News reports each new, changed and removed name once, and never a name that
// is unsafe to display.
func TestNames(t *testing.T) {
	a, b, c := identity.ID{1}, identity.ID{2}, identity.ID{3}
	var n Names
	for _, step := range []struct {
		names map[identity.ID]string
		want  []Named
	}{
		{nil, nil},
		{map[identity.ID]string{c: "Ada", b: "", a: "\x1b[2J"}, []Named{{c.String(), "Ada"}}},
		{map[identity.ID]string{c: "Ada", a: "Grace"}, []Named{{a.String(), "Grace"}}},
		{map[identity.ID]string{c: "Eve", a: "Grace", b: "x\ny"}, []Named{{c.String(), "Eve"}}},
		{map[identity.ID]string{c: "\u202e", a: "Grace"}, []Named{{c.String(), ""}}},
		{map[identity.ID]string{b: "Ada"}, []Named{{a.String(), ""}, {b.String(), "Ada"}}},
		{map[identity.ID]string{b: "Ada"}, nil},
	} {
		if got := n.News(step.names); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%q: got %v, want %v", step.names, got, step.want)
		}
	}
}
