package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/event"
)

// The members with incidents. The first member has none except stops of the whole run. It uploads
// and evaluates, and its view of the run schedules the incidents of the others.
const (
	killed = 1 // also has two devices
	slow   = 2 // also has the slow link, and is accused by a slanderer
	leaver = 3 // also has one device
)

// member is one participant.
type member struct {
	*testbed.Node

	mu       sync.Mutex // guards the fields below
	stopped  bool       // the newest life was asked to end
	left     bool       // it has left permanently
	troubles []trouble  // incidents of the member
}

// trouble is an incident that prevents a member's work.
type trouble struct {
	step   uint32 // newest step at its start
	absent bool   // the member could do nothing meanwhile, so that other members may continue without it
	reason string
}

const (
	present = false
	absent  = true
)

// newMember adds a member. The member is not started.
func (p *play) newMember(place testbed.Place) (*member, error) {
	node, err := p.net.NewMember(place)
	if err != nil {
		return nil, err
	}
	m := &member{Node: node}
	p.members = append(p.members, m)
	m.Args = append(m.Args, p.flags(m)...)
	if p.devices(m) > 0 {
		m.Env = append(slices.Clone(m.Env), p.world.device...)
	}
	return m, nil
}

// note records an incident that prevents the member's work from a step on.
func (m *member) note(step uint32, absent bool, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.troubles = append(m.troubles, trouble{step, absent, reason})
}

// excuse returns the reason why the member may lack a result in a step, or may be absent; empty:
// there is none.
func (m *member) excuse(step uint32, absent bool) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.troubles {
		if step+2 >= t.step && (t.absent || !absent) {
			return t.reason
		}
	}
	return ""
}

// start starts a life.
func (m *member) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = false
	return m.StartUntil(ctx)
}

// life reports whether the newest life was asked to end, and whether the member has left.
func (m *member) life() (asked, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped, m.left
}

// flags returns a member's flags in addition to the flags of every network.
func (p *play) flags(m *member) []string {
	device, devices := "cpu", p.devices(m)
	if devices > 0 {
		device = "cuda"
	}
	args := []string{"--device", device, "--max-blob-memory", "64", "--final-wait", "10s", "--known-servers", filepath.Join(m.Dir, "known")}
	threads := 1
	switch parallelism := p.row.levels["parallelism"]; {
	case devices > 0: // they replace groups of threads
		threads = devices
		args = append(args, "--data-parallelism", strconv.Itoa(devices))
	case parallelism == "data":
		threads = 2
		args = append(args, "--data-parallelism", "2")
	case parallelism == "tensor":
		threads = 2
		args = append(args, "--tensor-parallelism", "2")
	}
	args = append(args, "--threads", strconv.Itoa(threads))
	args = append(args, p.tracking(m)...)
	if m == p.members[0] {
		args = append(args, p.first()...)
	}
	return args
}

// devices returns the number of devices on which a member trains.
func (p *play) devices(m *member) int {
	if p.world.device == nil {
		return 0
	}
	switch slices.Index(p.members, m) {
	case killed:
		return 2
	case leaver:
		return 1
	default:
		return 0
	}
}

// tracking returns the flags of the row's trackers.
func (p *play) tracking(m *member) []string {
	switch p.row.levels["trackers"] {
	case "files":
		return []string{"--tensorboard-dir", filepath.Join(m.Dir, "tensorboard"), "--metrics-file", m.metrics(), "--wandb-project", "matrix"}
	case "otlp":
		return []string{
			"--oltp-metrics-url", p.world.collector + "/v1/metrics", "--oltp-tracing-url", p.world.collector + "/v1/traces",
			"--oltp-logs-url", p.world.collector + "/v1/logs", "--oltp-report-interval", "1",
		}
	}
	return nil
}

// sawTheEnd reports whether the member's newest process saw the end of the run.
func (m *member) sawTheEnd() (ended bool) {
	for e, err := range event.Read(m.Events()) {
		if err != nil {
			return false
		}
		switch e.Body.(type) {
		case event.Started:
			ended = false
		case event.Finished:
			ended = true
		}
	}
	return ended
}

func (m *member) metrics() string { return filepath.Join(m.Dir, "metrics.jsonl") }

// first returns the flags that only the first member has: for uploads and evaluations.
func (p *play) first() (args []string) {
	switch p.row.levels["uploads"] {
	case "hub":
		args = append(args, "--hub-repo", uploadRepo)
	case "bucket":
		args = append(args, "--gcs-bucket", uploadBucket)
	}
	if p.row.has("evaluations", "on") {
		args = append(args, "--eval-tasks", "arc_easy", "--eval-data", p.evaluations, "--eval-task-max-docs", "2", "--prompt-task")
	}
	return args
}
