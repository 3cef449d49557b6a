package event

import (
	"bytes"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Named reports the name that a client of the run chose, as far as the process knows. A signature
// by the client's key is the only proof of a name: several clients may have the same name.
type Named struct {
	Client string `json:"client"`
	Name   string `json:"name"` // empty: the client no longer has one
}

// Kind implements Body.
func (Named) Kind() string { return "named" }

// Names contains the last reported name of each client. The zero value contains none.
type Names struct{ said map[identity.ID]string }

// News returns the names that have changed since the last call, in the order of their keys. Names
// that may not be shown count as empty.
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
