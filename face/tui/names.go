package tui

import (
	"fmt"
	"maps"

	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/record/event"
)

// nameColumns are shown of a name at most.
const nameColumns = 16

// names are what clients call themselves. They prove nothing, so they are shown behind keys, never in place of them.
type names map[string]string

// with returns the names after an event. Others may have the old ones.
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

// of returns what is shown behind a client's key: its name, cut, or nothing.
func (n names) of(id string) string {
	name := n[id]
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" %q", ansi.Truncate(printable(name), nameColumns, "…"))
}
