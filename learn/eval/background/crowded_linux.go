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

// runnable is the number of threads that run or want to: what stands before the slash in the fourth
// field of /proc/loadavg (proc_loadavg(5)); 0 where it is not there.
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
