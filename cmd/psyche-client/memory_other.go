//go:build !linux

package main

// peakMemory returns 0: it is unknown on this system.
func peakMemory() uint64 { return 0 }

func availableMemory() uint64 { return 0 }

func allocatableMemory() uint64 { return 0 }
