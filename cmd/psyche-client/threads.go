package main

import (
	"fmt"
	"runtime"
)

// threadCount is the number of computing threads. 0 means OMP_NUM_THREADS or, if it is unset, one per
// CPU.
type threadCount int

// Validate is called when the command line is parsed.
func (t threadCount) Validate() error {
	switch most := maxThreads(); {
	case t < 0:
		return fmt.Errorf("%d threads: want at least 1, or 0 for one per CPU", t)
	case int(t) > most:
		return fmt.Errorf("%d threads: want at most %d on a machine of %d CPUs", t, most, runtime.NumCPU())
	}
	return nil
}

// maxThreads limits the threads of a process, and the groups that they are divided into. More than
// one thread per CPU has no benefit, and with hundreds per CPU the machine mostly switches between
// them.
func maxThreads() int { return max(64, 4*runtime.NumCPU()) }
