package main

import "fmt"

// threadCount is the number of threads that compute; 0: one for each CPU, or what
// OMP_NUM_THREADS says.
type threadCount int

// Validate is called when the command line is parsed.
func (n threadCount) Validate() error {
	if n < 0 {
		return fmt.Errorf("%d threads: want at least 1, or 0 for one for each CPU", n)
	}
	return nil
}
