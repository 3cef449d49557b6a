//go:build !cgo || !amd64

package distro

// nativeISAs returns nothing: this build has only the kernel in Go.
func nativeISAs() []isa { return nil }
