package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

// jobTimeout limits a measurement: only a hang or a very slow machine exceeds it.
const jobTimeout = time.Hour

// measurement is the result for a system, alone or over a link: a log with one line.
type measurement struct {
	System, Link string
	Torch        string    `json:",omitempty"` // versions of the libraries of a PyTorch system
	Ended        time.Time // end of the measurement
	Load         string    // one-minute average at the end
	Sequences    int       // of an exchange, over all members
	Points       []point
	CPU          []float64 `json:",omitempty"` // CPU time of each member in seconds
	Sent         float64   `json:",omitempty"` // bytes per member and exchange, including TCP and IP headers; 0: not known
	Digests      []string  `json:",omitempty"` // of the members' final weights
	Apart        float64   `json:",omitempty"` // largest relative distance between two members' weights; 0: not known
	Killed       *killed   `json:",omitempty"`
}

// point is the state after an exchange.
type point struct {
	Step    int
	Seconds float64 // since the start of the first exchange
	Loss    float64 `json:",omitempty"` // of training
	HeldOut float64 `json:",omitempty"`
	Bytes   int     `json:",omitempty"` // of a member's result
}

// killed is the effect of killing a member during a run.
type killed struct {
	Before  float64 `json:",omitempty"` // seconds per exchange before the kill; 0: not known
	Stall   float64 // seconds until another member finished an exchange after the kill, or ended
	Failed  bool    // the others ended
	Back    float64 `json:",omitempty"` // seconds from the restart until the member trained again; 0: never
	Lost    int     `json:",omitempty"` // exchanges that had to be repeated
	Message string  `json:",omitempty"`
}

// exchangeSeconds returns the mean time of exchanges, without the first two, in which libraries
// warm up.
func (m measurement) exchangeSeconds() float64 {
	from, to := m.Points[min(2, len(m.Points)-2)], m.Points[len(m.Points)-1]
	return (to.Seconds - from.Seconds) / float64(to.Step-from.Step)
}

func (m measurement) equal() bool {
	for _, digest := range m.Digests {
		if digest != m.Digests[0] {
			return false
		}
	}
	return len(m.Digests) == members
}

func (m measurement) summary(length int) string {
	if m.Killed != nil {
		return fmt.Sprintf("  %+v", *m.Killed)
	}
	last := m.Points[len(m.Points)-1]
	return fmt.Sprintf("  %d exchanges, %.3f s each, %.0f tokens/s, held-out %.4f, %.0f bytes sent, CPU %.1f s, load %s, equal %v",
		last.Step, m.exchangeSeconds(), float64(m.Sequences*length)/m.exchangeSeconds(), last.HeldOut, m.Sent, m.CPU, m.Load, m.equal())
}

func (b *bench) path(name string) string { return filepath.Join(b.logs, name+rawlog.Suffix) }

// write writes a log to a file, and renames it to path when it is complete.
func (m measurement) write(file *os.File, path string) error {
	log := gzip.NewWriter(file)
	if err := errors.Join(file.Truncate(0), json.NewEncoder(log).Encode(m), log.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// read reads all logs, by name.
func (b *bench) read() (map[string]measurement, error) {
	paths, err := filepath.Glob(filepath.Join(b.logs, "*"+rawlog.Suffix))
	if err != nil {
		return nil, err
	}
	all := map[string]measurement{}
	for _, path := range paths {
		var m measurement
		log, err := rawlog.Open(path)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(json.NewDecoder(log).Decode(&m), log.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if m.Killed == nil && len(m.Points) < 2 {
			return nil, fmt.Errorf("%s: %d points, want at least 2; remove the file to repeat the measurement", path, len(m.Points))
		}
		all[strings.TrimSuffix(filepath.Base(path), rawlog.Suffix)] = m
	}
	return all, nil
}

// ownCPU returns this process's CPU time in seconds.
func ownCPU() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
