//go:build cgo && amd64

package distro

// nativeISAs returns nothing yet.
func nativeISAs() []isa { return nil }
