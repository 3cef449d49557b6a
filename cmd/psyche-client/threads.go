package main

import (
	"fmt"
	"runtime"
)

// threadCount is the number of threads that compute; 0: one for each CPU, or what
// OMP_NUM_THREADS says.
type threadCount int

// Validate is called when the command line is parsed.
func (n threadCount) Validate() error {
	switch most := maxThreads(); {
	case n < 0:
		return fmt.Errorf("%d threads: want at least 1, or 0 for one per CPU", n)
	case int(n) > most:
		return fmt.Errorf("%d threads: want at most %d on a machine of %d CPUs", n, most, runtime.NumCPU())
	}
	return nil
}

// maxThreads bounds the threads of a process, and the groups that they are divided into.
// Nobody gains by more than one for each CPU, and with hundreds for each the machine does
// little but change between them.
func maxThreads() int { return max(64, 4*runtime.NumCPU()) }
