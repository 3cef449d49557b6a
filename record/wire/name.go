package wire

import (
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
)

// CheckName returns why a member cannot give itself a name; nil: it can.
//
// The decoder takes every text of that length: which characters can be printed is another question in each version
// of Unicode, and a log has to mean the same to everybody. So whoever shows a name asks NameOf.
func CheckName(name string) error { return plain.CheckName(name, coordinator.MaxMemberName) }

// NameOf returns the name that a member gives itself, empty if it gives none that may be shown. It proves nothing:
// others may have the same, or one that looks like it.
func NameOf(j coordinator.Join) string {
	if CheckName(j.Name) != nil {
		return ""
	}
	return j.Name
}
