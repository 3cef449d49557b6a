package tui

import (
	"fmt"
	"maps"

	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/record/event"
)

// nameColumns is the maximum width of a name.
const nameColumns = 16

// names are the display names of clients. They are not proof of identity, so displays show them
// after keys, never instead of keys.
type names map[string]string

// with returns the names after an event. It copies the map, because readers may hold the old one.
func (n names) with(e event.Named) names {
	next := maps.Clone(n)
	if next == nil {
		next = names{}
	}
	if next[e.Client] = e.Name; e.Name == "" {
		delete(next, e.Client)
	}
	return next
}

// of returns the text after a client's key: its truncated name, or nothing.
func (n names) of(id string) string {
	name := n[id]
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" %q", ansi.Truncate(printable(name), nameColumns, "…"))
}
