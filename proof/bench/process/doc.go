// Package process runs servers and clients for benchmarks as separate processes, on loopback or
// behind links, with modified settings.
package process
