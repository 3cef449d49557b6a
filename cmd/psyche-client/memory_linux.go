package main

import "syscall"

// peakMemory returns the most bytes of the machine's memory that the process had so far.
func peakMemory() uint64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return uint64(used.Maxrss) << 10
}
