// Package models contains decisions about a member's copies of intermediate checkpoints as values.
// It has no context, clock, goroutine, disk or network: package node/client executes the decisions.
//
//   - copies.go: Copies decides which models to take, keep, report and drop.
//   - disk.go: Copies decides which copy to write to the disk, and when.
//   - shares.go: Shares decides which copies members that return to the epoch may fetch.
package models
