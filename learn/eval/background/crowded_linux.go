package background

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// Crowded reports whether at least as many other threads are running or runnable as there are
// processors. In a container it counts the threads of the whole machine.
func Crowded() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	return runnable(text) > runtime.NumCPU()
}

// runnable returns the number of running and runnable threads: the number before the slash in the
// fourth field of /proc/loadavg (proc_loadavg(5)), or 0 if it is missing.
func runnable(text []byte) int {
	fields := bytes.Fields(text)
	if len(fields) < 4 {
		return 0
	}
	number, _, _ := bytes.Cut(fields[3], []byte("/"))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		return 0
	}
	return n
}
