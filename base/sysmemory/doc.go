// Package sysmemory measures the main memory of this machine: [Available], [Allocatable] and [Peak]. It knows the limits of
// containers and control groups. On systems other than Linux, everything is unknown.
package sysmemory
