// Package models contains decisions about a member's copies of intermediate checkpoints as values.
// It has no context, clock, goroutine, disk or network: package node/client executes the decisions.
//
//   - copies.go: Copies decides which models to keep, report and drop.
//   - work.go: the work that Copies starts (Take, Hash, Write), and its results.
//   - disk.go: writes to the disk, and the folders that must stay.
//   - shares.go: Shares decides which copies members that return to the epoch may fetch.
package models
