package event

import (
	"bytes"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Named says what a client of the run calls itself, as far as the process knows. That its key signed the name is all
// that there is to it: others may have the same.
type Named struct {
	Client string `json:"client"`
	Name   string `json:"name"` // empty: it has none any more
}

// Kind implements Body.
func (Named) Kind() string { return "named" }

// Names are what clients were said to be called. The zero value is of none.
type Names struct{ said map[identity.ID]string }

// News returns those that are called otherwise than was said, in the order of their keys. Names that may not be shown
// are none.
func (n *Names) News(names map[identity.ID]string) (news []Named) {
	shown := make(map[identity.ID]string)
	for id, name := range names {
		if plain.CheckName(name, coordinator.MaxMemberName) == nil {
			shown[id] = name
		}
	}
	changed := make(map[identity.ID]string)
	for id, name := range shown {
		if n.said[id] != name {
			changed[id] = name
		}
	}
	for id := range n.said {
		if shown[id] == "" {
			changed[id] = ""
		}
	}
	n.said = shown
	for _, id := range slices.SortedFunc(maps.Keys(changed), func(a, b identity.ID) int { return bytes.Compare(a[:], b[:]) }) {
		news = append(news, Named{Client: id.String(), Name: changed[id]})
	}
	return news
}
