//go:build !cgo || !amd64

package distro

// nativeISAs returns nothing, because this build has only the Go kernel.
func nativeISAs() []isa { return nil }
