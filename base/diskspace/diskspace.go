// Package diskspace compares the free space of a file system with the bytes that are about to be written, and recognises
// errors of a full disk.
//
//	if err := diskspace.Check("/data/out", "the weights", 4<<30, nil); err != nil {
//		return fmt.Errorf("--output: %w, or choose another folder", err)
//	}
package diskspace

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

// ErrTooLittle means that a file system has less free space than a write needs.
var ErrTooLittle = errors.New("not enough disk space")

// Space is the free space of a file system. The zero value means that it is unknown.
type Space struct {
	bytes uint64
	known bool
}

// Bytes returns a known Space of n bytes. 0 means a full disk.
func Bytes(n uint64) Space { return Space{n, true} }

// Known returns the free bytes, and whether they are known.
func (s Space) Known() (bytes uint64, known bool) { return s.bytes, s.known }

// Plus returns the space after that many more bytes have been freed. An unknown space stays unknown.
func (s Space) Plus(bytes uint64) Space {
	s.bytes += min(bytes, math.MaxUint64-s.bytes)
	return s
}

// Fits reports whether bytes fit. Everything fits into an unknown space.
func (s Space) Fits(bytes uint64) bool { return !s.known || bytes <= s.bytes }

// Probe returns the free space at a path. Tests use a Probe other than Of.
type Probe func(path string) Space

// Of returns the free space that this user may fill at a path. The path need not exist: Of uses the
// nearest folder above it.
func Of(path string) Space {
	dir := Folder(path)
	if dir == "" {
		return Space{}
	}
	return of(dir)
}

// Folder returns the nearest folder at or above a path that exists, or "" if there is none.
func Folder(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// Check returns an error that wraps ErrTooLittle if need bytes do not fit at a path. kind names the
// data to write, in the plural. If probe is nil, Check uses Of. The error suggests only removing files;
// the caller may append other remedies.
func Check(path, kind string, need uint64, probe Probe) error {
	if probe == nil {
		probe = Of
	}
	return probe(path).Check(path, kind, need)
}

// Check is like the function Check, but uses the free space s.
func (s Space) Check(path, kind string, need uint64) error {
	if s.Fits(need) {
		return nil
	}
	return fmt.Errorf("%w: %s take %s, but %s are free in %s; remove files there", ErrTooLittle, kind, Format(need), Format(s.bytes), path)
}

// IsFull reports whether an error means that the disk, or the user's quota, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Explain appends a remedy to an error of a full disk, and returns any other error unchanged.
func Explain(err error, remedy string) error {
	if !IsFull(err) {
		return err
	}
	return fmt.Errorf("%w; %s", err, remedy)
}

// Format writes a number of bytes with the unit that leaves at most three digits before the point,
// such as "1.0 KiB" or "999.9 MiB", so the text is at most 9 characters long below 1000 TiB.
func Format[N int | int64 | uint64 | float64](bytes N) string {
	const most = 999.95 // rounds to 1000.0
	n := float64(bytes)
	if n < 999.5 {
		return fmt.Sprintf("%.0f B", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for n /= 1024; n >= most && len(units) > 1; n /= 1024 {
		units = units[1:]
	}
	return fmt.Sprintf("%.1f %s", n, units[0])
}
