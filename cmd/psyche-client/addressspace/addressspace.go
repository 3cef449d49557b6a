// Package addressspace ends a program at its start if its address space is too small for the Go
// runtime and C threads.
//
// A program imports it for its effect:
//
//	import _ "github.com/psyche-go/psyche/cmd/psyche-client/addressspace"
//
// Under a small limit of ulimit -v, the runtime fails to start a thread, before any Go code runs,
// and prints a trace. On Linux with cgo, a C constructor runs earlier: it compares the limit with
// need and exits with status 1 and a message.
package addressspace

// need is the minimum limit of the address space in KiB, the unit of ulimit -v. With a smaller limit,
// threads did not start, or loading libtorch did not finish.
const need = 2_100_000
