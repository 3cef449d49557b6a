package wire

import (
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
)

// CheckName returns the reason why a member cannot have a name, or nil.
//
// The decoder accepts every text of an allowed length: the printable characters differ between
// versions of Unicode, and a log must have the same meaning for all readers. Code that displays a
// name must therefore use NameOf.
func CheckName(name string) error { return plain.CheckName(name, coordinator.MaxMemberName) }

// NameOf returns the name that a member chose, or an empty string if it has none that may be shown.
// A name proves nothing: other members may have the same name, or a similar-looking name.
func NameOf(j coordinator.Join) string {
	if CheckName(j.Name) != nil {
		return ""
	}
	return j.Name
}
