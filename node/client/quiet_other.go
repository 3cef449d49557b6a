//go:build !linux

package client

import "github.com/psyche-go/psyche/files/checkpoint"

// quietly runs background work, at normal priority, because on this system a priority belongs to
// the whole process. It returns a panic as an error.
func quietly(_ checkpoint.Snapshot, do func() error) error { return recovered(do) }
