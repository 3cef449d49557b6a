//go:build !linux

package background

// Crowded is not known here.
func Crowded() bool { return false }
