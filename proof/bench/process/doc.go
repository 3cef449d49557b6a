// Package process runs the programs for benchmarks: servers and clients as processes of their own, on
// loopback or behind links, with settings that a benchmark changes.
package process
