package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/proof/bench/process"
)

// line is what a member of peers.py prints of an exchange.
type line struct {
	Step    int
	Time    float64 // Unix
	CPU     float64 // seconds of processor since it began
	Loss    float64
	HeldOut float64
	Digest  string
}

// torchVersion returns the version of PyTorch that an interpreter has.
func torchVersion(ctx context.Context, python string) (string, error) {
	out, err := exec.CommandContext(ctx, python, "-c", "import numpy, torch; print(torch.__version__)").Output()
	if err != nil {
		return "", fmt.Errorf("%s has no torch and numpy (pip install torch numpy, in a virtual environment that -python names)", python)
	}
	return strings.TrimSpace(string(out)), nil
}

// startTorch starts the members of a system of peers.py, whose output goes to files in a folder.
func (b *bench) startTorch(ctx context.Context, s system, dir string, places []process.Place, exchanges int, more ...string) (all []*process.Process, err error) {
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	for i := range members {
		arguments := []string{
			b.script, "--system", s.Torch, "--model", b.model, "--tokens", filepath.Join(b.text.dir, trainFile),
			"--held-out", filepath.Join(b.text.dir, heldOutFile), "--length", strconv.Itoa(b.length),
			"--rank", strconv.Itoa(i), "--world", strconv.Itoa(members), "--address", places[i].Address,
			"--first", net.JoinHostPort(places[0].Address, strconv.Itoa(port)), "--batch", strconv.Itoa(s.Batch), "--steps", strconv.Itoa(exchanges),
		}
		place := places[i]
		place.Env = append(place.Env, "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=")
		one, err := process.Start(ctx, place, fmt.Sprintf("%s of rank %d", s.Torch, i), filepath.Join(dir, fmt.Sprintf("rank-%d.log", i)),
			b.python, append(append(arguments, s.Flags...), more...)...)
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// readTorch reads what a member has printed so far; what is no JSON is a warning of a library.
func readTorch(dir string, rank int) (lines []line, err error) {
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rank-%d.log", rank)))
	if err != nil {
		return nil, err
	}
	for one := range bytes.Lines(text) {
		var l line
		if json.Unmarshal(one, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// torchRun runs a system of peers.py to its end.
func (b *bench) torchRun(ctx context.Context, s system, places []process.Place, exchanges int, more ...string) (m measurement, err error) {
	dir, err := os.MkdirTemp(b.out, "torch-")
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	sent := watchSent(ctx, places[:members])
	all, err := b.startTorch(ctx, s, dir, places, exchanges, more...)
	for _, one := range all {
		if err != nil {
			cancel()
		}
		if failed := one.Wait(); err == nil && failed != nil {
			err = failed
		}
	}
	cancel()
	traffic := <-sent
	if err != nil {
		return m, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	m.Sequences = s.Batch
	for rank := range members {
		lines, err := readTorch(dir, rank)
		if err != nil {
			return m, err
		}
		if len(lines) < 3 || lines[len(lines)-1].Digest == "" {
			return m, fmt.Errorf("rank %d of %s said too little (logs are in %s)", rank, s.Name, dir)
		}
		last := lines[len(lines)-1]
		m.Digests = append(m.Digests, last.Digest)
		m.CPU = append(m.CPU, last.CPU-lines[0].CPU)
		if rank > 0 {
			continue
		}
		for _, l := range lines[:len(lines)-1] {
			m.Points = append(m.Points, point{Step: l.Step, Seconds: l.Time - lines[0].Time, Loss: l.Loss, HeldOut: l.HeldOut})
		}
		m.Sent = traffic.between(unix(lines[1].Time), unix(last.Time)) / float64(exchanges)
	}
	return m, os.RemoveAll(dir)
}

func unix(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }
