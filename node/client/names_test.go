package client

import (
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestNamesOfMembers checks that the event log of each member contains a member's name once.
func TestNamesOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a := w.launch(0, func(o *options) { o.Name = "Ada" })
		b := w.launch(1, nil)
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			if named := all[event.Named](m); len(named) != 1 || named[0] != (event.Named{Client: a.id.String(), Name: "Ada"}) {
				t.Errorf("got %+v; want len(named) == 1 and named[0] == (event.Named{Client: a.id.String(), Name: \"Ada\"})", named)
			}
		}
	})
}
