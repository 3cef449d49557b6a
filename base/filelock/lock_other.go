//go:build !unix || aix

package filelock

import "os"

// Supported reports whether locks exclude other processes on this system.
const Supported = false

func try(*os.File) error { return nil }

func knowsNoLocks(error) bool { return false }
