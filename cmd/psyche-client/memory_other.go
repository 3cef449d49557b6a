//go:build !linux

package main

// peakMemory is not known here.
func peakMemory() uint64 { return 0 }

func availableMemory() uint64 { return 0 }

func allocatableMemory() uint64 { return 0 }
