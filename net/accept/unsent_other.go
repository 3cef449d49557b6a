//go:build !linux

package accept

func limitUnsent(uintptr, int) {}
