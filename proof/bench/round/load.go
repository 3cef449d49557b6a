package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	sampleInterval = 200 * time.Millisecond
	ticksPerSecond = 100 // of /proc, on every Linux
)

// sample is the CPU time used until a moment, in seconds.
type sample struct {
	at                     time.Time
	clients, server, total float64
}

// watchLoad samples the CPU time of processes until ctx ends. It returns no samples if the system
// does not report it.
func watchLoad(ctx context.Context, server int, clients []int) (samples []sample) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		if s, err := takeSample(server, clients); err == nil {
			samples = append(samples, s)
		}
		select {
		case <-ctx.Done():
			return samples
		case <-ticker.C:
		}
	}
}

func takeSample(server int, clients []int) (sample, error) {
	s := sample{at: time.Now()}
	var err error
	if s.server, err = processSeconds(server); err != nil {
		return s, err
	}
	for _, pid := range clients {
		seconds, err := processSeconds(pid)
		if err != nil {
			return s, err
		}
		s.clients += seconds
	}
	s.total, err = machineSeconds()
	return s, err
}

// processSeconds returns the user and system time of a process.
func processSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), ") ") // the name may contain spaces
	fields := strings.Fields(after)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields after the name, want at least 13", pid, len(fields))
	}
	return ticks(fields[11:13])
}

// machineSeconds returns the time in which the cores were busy, including the time that the host of
// a virtual machine took.
func machineSeconds() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat: %d fields in the first line, want at least 9", len(fields))
	}
	busy := append([]string{}, fields[1:4]...) // user, nice, system
	return ticks(append(busy, fields[6:9]...)) // irq, softirq, steal; without idle and iowait
}

func ticks(fields []string) (float64, error) {
	sum := 0.0
	for _, field := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += float64(n)
	}
	return sum / ticksPerSecond, nil
}

// shares returns the shares of all cores' time that the clients and all other programs used in the
// window; nil if not measured.
func shares(samples []sample, window span) (clients, elsewhere *float64) {
	var first, last *sample
	for i := range samples {
		if s := &samples[i]; !s.at.Before(window.from) && !s.at.After(window.to) {
			if first == nil {
				first = s
			}
			last = s
		}
	}
	if first == nil || first == last {
		return nil, nil
	}
	cores := float64(runtime.NumCPU()) * last.at.Sub(first.at).Seconds()
	ofClients := (last.clients - first.clients) / cores
	others := max(0, (last.total-first.total-(last.server-first.server))/cores-ofClients)
	return &ofClients, &others
}

// loadAverage returns the one-minute load average; 0 if the system does not report it.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
