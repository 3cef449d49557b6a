package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/proof/testbed"
)

// line is the output of a member of peers.py or hivemind_peer.py for an exchange.
type line struct {
	Step    int
	Time    float64 // Unix
	CPU     float64 // CPU time since the start in seconds
	Loss    float64
	HeldOut float64
	Digest  string

	Rank, PID int // if all members write to one log
	Sequences int // that the member trained; 0: its full share
}

// versions returns the versions of libraries in an interpreter.
func versions(ctx context.Context, python string, libraries ...string) (string, error) {
	names := strings.Join(libraries, ", ")
	program := "import " + names + "\nprint(*[one.__name__ + ' ' + one.__version__ for one in (" + names + ")], sep=', ')"
	out, err := exec.CommandContext(ctx, python, "-c", program).Output()
	if err != nil {
		return "", fmt.Errorf("%s cannot import %s (pip install %s, in a virtual environment that -python names)", python, names, strings.Join(libraries, " "))
	}
	return strings.TrimSpace(string(out)), nil
}

// torchRun is a run of a PyTorch system: each member is a process whose output goes to a file in a
// folder.
type torchRun struct {
	bench     *bench
	system    system
	dir       string
	places    []testbed.Place
	first     string // address of the first member
	arguments []string
	members   []*child.Process
}

// newTorchRun prepares a run.
func (b *bench) newTorchRun(s system, dir string, places []testbed.Place, exchanges int, more ...string) (*torchRun, error) {
	port, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	script := "peers.py"
	if s.Torch == hivemind {
		script, more = "hivemind_peer.py", append(more, "--folder", dir)
	}
	arguments := []string{
		filepath.Join("proof/bench/peers", script), "--system", s.Torch, "--model", b.model, "--tokens", filepath.Join(b.text.dir, trainFile),
		"--held-out", filepath.Join(b.text.dir, heldOutFile), "--length", strconv.Itoa(b.length),
		"--batch", strconv.Itoa(s.Batch), "--steps", strconv.Itoa(exchanges),
	}
	return &torchRun{
		bench: b, system: s, dir: dir, places: places, first: net.JoinHostPort(places[0].Address, strconv.Itoa(port)),
		arguments: slices.Concat(arguments, s.Flags, more),
	}, nil
}

// startAll starts all members.
func (r *torchRun) startAll(ctx context.Context) error {
	for rank := range members {
		one, err := r.start(ctx, rank, rankLog(rank))
		if err != nil {
			return err
		}
		r.members = append(r.members, one)
	}
	return nil
}

func rankLog(rank int) string { return fmt.Sprintf("rank-%d.log", rank) }

// start starts a member.
func (r *torchRun) start(ctx context.Context, rank int, log string) (*child.Process, error) {
	arguments := slices.Concat(r.arguments, []string{
		"--rank", strconv.Itoa(rank), "--world", strconv.Itoa(members), "--address", r.places[rank].Address, "--first", r.first,
	})
	return testbed.Start(ctx, r.place(rank), fmt.Sprintf("%s of rank %d", r.system.Torch, rank), filepath.Join(r.dir, log), r.bench.python, arguments...)
}

func (r *torchRun) place(rank int) testbed.Place {
	place := r.places[rank]
	place.Env = append(slices.Clone(place.Env), "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=")
	return place
}

// kill kills a member and, with Hivemind, its child processes.
func kill(member *child.Process) {
	_ = syscall.Kill(-member.PID(), syscall.SIGKILL) // the group exists if hivemind_peer.py created one
	member.Signal(syscall.SIGKILL)
}

// end kills the remaining processes.
func (r *torchRun) end() {
	for _, one := range r.members {
		kill(one)
		<-one.Ended()
	}
}

// lines reads a log of a run. It ignores lines that are not JSON, which are warnings of a library.
func (r *torchRun) lines(log string) (lines []line, err error) {
	text, err := os.ReadFile(filepath.Join(r.dir, log))
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

// torchRun runs a PyTorch system to its end.
func (b *bench) torchRun(ctx context.Context, s system, places []testbed.Place, exchanges int, more ...string) (m measurement, err error) {
	dir, err := os.MkdirTemp(b.out, "torch-")
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := watchSent(ctx, places[:members])
	r, err := b.newTorchRun(s, dir, places, exchanges, more...)
	if err != nil {
		return m, err
	}
	defer r.end()
	if err = r.startAll(ctx); err == nil {
		err = r.wait()
	}
	cancel()
	traffic := <-sent
	if err == nil {
		err = r.read(&m, traffic)
	}
	if err != nil {
		return m, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	return m, os.RemoveAll(dir)
}

// wait waits until all members have ended, or one has failed.
func (r *torchRun) wait() error {
	failed := make(chan error, len(r.members))
	for _, one := range r.members {
		go func() { failed <- one.Wait() }()
	}
	for range r.members {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// read reads the members' output of a run that has ended.
func (r *torchRun) read(m *measurement, sent traffic) error {
	trained := 0
	for rank := range members {
		lines, err := r.lines(rankLog(rank))
		if err != nil {
			return err
		}
		if len(lines) < 3 || lines[len(lines)-1].Digest == "" {
			return fmt.Errorf("the output of rank %d of %s is incomplete", rank, r.system.Name)
		}
		last := lines[len(lines)-1]
		m.Digests = append(m.Digests, last.Digest)
		m.CPU = append(m.CPU, last.CPU-lines[0].CPU)
		for _, l := range lines {
			trained += l.Sequences
		}
		if rank == 0 {
			m.Points = pointsOf(lines[:len(lines)-1])
			m.Sent = sent.between(unix(lines[1].Time), unix(last.Time)) / float64(last.Step-lines[1].Step)
		}
	}
	if m.Sequences = r.system.Batch; trained > 0 {
		m.Sequences = int(math.Round(float64(trained) / float64(m.Points[len(m.Points)-1].Step)))
	}
	if m.equal() {
		return nil
	}
	var err error
	m.Apart, err = apart(r.dir)
	return err
}

// pointsOf converts lines to points. A loss that was measured later belongs to the point of its
// step.
func pointsOf(lines []line) (points []point) {
	for _, l := range lines {
		if i := slices.IndexFunc(points, func(p point) bool { return p.Step == l.Step }); i >= 0 && l.HeldOut > 0 {
			points[i].HeldOut = l.HeldOut
			continue
		}
		points = append(points, point{Step: l.Step, Seconds: l.Time - lines[0].Time, Loss: l.Loss, HeldOut: l.HeldOut})
	}
	return points
}

// apart returns the largest relative distance between the saved final weights of two members.
func apart(dir string) (maximum float64, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "rank-*.f32"))
	if err != nil {
		return 0, err
	}
	var all [][]byte
	for _, path := range paths {
		weights, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		for _, other := range all {
			if len(other) != len(weights) {
				return 0, fmt.Errorf("%s: %d bytes of weights, but another member has %d", path, len(weights), len(other))
			}
			maximum = max(maximum, distance(weights, other))
		}
		all = append(all, weights)
	}
	return maximum, nil
}

// distance returns the distance between two vectors of 32-bit floats, relative to the length of the
// second.
func distance(a, b []byte) float64 {
	apart, length := 0.0, 0.0
	for i := 0; i+4 <= len(b); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(a[i:])))
		y := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		apart, length = apart+(x-y)*(x-y), length+y*y
	}
	return math.Sqrt(apart / length)
}

func unix(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }
