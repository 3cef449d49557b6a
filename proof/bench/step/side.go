package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// side is a process that performs a step on request.
type side struct {
	name    string
	process *exec.Cmd
	cpu     bool // measure CPU time
	device  bool // measure the memory of a device
	input   io.WriteCloser
	output  *bufio.Scanner
	seconds []float64 // of the steps that count
	peak    int64     // peak resident memory, KiB
	product float64   // FLOP/s of a large matrix product, if the process measures it
	ended   bool
}

func start(ctx context.Context, o options, s setup, name string) (*side, error) {
	c, err := command(ctx, o, s, name)
	if err != nil {
		return nil, err
	}
	input, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	one := &side{name: name, process: c, cpu: o.cpu, device: o.device != "cpu", input: input, output: bufio.NewScanner(output)}
	if line, err := one.line(); err != nil || !strings.HasPrefix(line, "ready") {
		return nil, errors.Join(fmt.Errorf("answer %q, want ready", line), err, one.kill())
	}
	return one, nil
}

func (s *side) line() (string, error) {
	if !s.output.Scan() {
		return "", errors.Join(io.ErrUnexpectedEOF, s.output.Err())
	}
	return s.output.Text(), nil
}

// step makes the process perform one step.
func (s *side) step(counts bool) error {
	if _, err := io.WriteString(s.input, "step\n"); err != nil {
		return err
	}
	line, err := s.line()
	if err != nil {
		return err
	}
	var seconds, processor, loss float64
	if _, err := fmt.Sscan(line, &seconds, &processor, &loss); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if !(loss > 9 && loss < 12) {
		return fmt.Errorf("the loss on random tokens is %v", loss)
	}
	if s.cpu {
		seconds = processor
	}
	if counts {
		s.seconds = append(s.seconds, seconds)
	}
	return nil
}

// finish ends the process and reads its peak memory and the speed of its matrix products.
func (s *side) finish() error {
	var held int64
	if s.device {
		var err error
		if held, err = deviceMemory(s.process.Process.Pid); err != nil {
			return err
		}
	}
	if err := s.input.Close(); err != nil {
		return err
	}
	line, err := s.line()
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(line, &s.peak, &s.product); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if s.device {
		s.peak = held
	}
	s.ended = true
	return s.process.Wait()
}

// deviceMemory returns the memory of a process on CUDA devices, in KiB. Both libraries keep
// allocated memory, so after some steps it is the peak memory of a step.
func deviceMemory(pid int) (int64, error) {
	out, err := exec.Command("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 0, fmt.Errorf("nvidia-smi: %w", err)
	}
	var sum int64
	for line := range strings.Lines(string(out)) {
		of, mebibytes, _ := strings.Cut(strings.TrimSpace(line), ", ")
		if of != strconv.Itoa(pid) {
			continue
		}
		n, err := strconv.ParseInt(mebibytes, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("nvidia-smi reports %[2]q as the memory of process %[1]d", pid, mebibytes)
		}
		sum += n << 10
	}
	return sum, nil
}

// kill ends a process that did not finish.
func (s *side) kill() error {
	if s.ended {
		return nil
	}
	s.ended = true
	err := s.process.Process.Kill()
	_ = s.process.Wait() // reports that it was killed
	return err
}

func quotients(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
