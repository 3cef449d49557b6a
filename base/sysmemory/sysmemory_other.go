//go:build !linux

package sysmemory

// Peak returns 0: it is unknown on this system.
func Peak() uint64 { return 0 }

// Available returns 0: it is unknown on this system.
func Available() uint64 { return 0 }

// Allocatable returns 0: it is unknown on this system.
func Allocatable() uint64 { return 0 }
