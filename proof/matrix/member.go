package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/proof/bench/process"
	"github.com/psyche-go/psyche/record/event"
)

// The members with incidents. The first member has none except stops of the whole run. It uploads
// and evaluates, and its view of the run schedules the incidents of the others.
const (
	killed = 1
	slow   = 2 // also has the slow link, and is accused by a slanderer
	leaver = 3
)

// member is one participant; its lives share key, folder and event log.
type member struct {
	p       *play
	name    string
	home    string
	key     identity.Key
	keyPath string
	place   process.Place
	program string

	mu       sync.Mutex // guards the fields below
	now      *process.Process
	lives    int
	asked    bool      // the newest life was asked to end
	left     bool      // it has left permanently
	troubles []trouble // incidents of the member
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

// newMember adds a member, with a new key. The member is not started.
func (p *play) newMember(i int) (*member, error) {
	name := fmt.Sprintf("client-%d", i+1)
	home, err := process.Folder(p.dir, name)
	if err != nil {
		return nil, err
	}
	m := &member{p: p, name: name, home: home, keyPath: filepath.Join(home, "key.json"), place: p.place, program: p.client()}
	if m.key, err = identity.Generate(rand.Reader); err != nil {
		return nil, err
	}
	p.members = append(p.members, m)
	return m, identity.SaveKeyFile(m.keyPath, m.key)
}

func (m *member) events() string { return filepath.Join(m.home, "events.jsonl") }

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
	m.lives++
	m.asked = false
	log := filepath.Join(m.home, fmt.Sprintf("client-%d.log", m.lives))
	now, err := process.Start(ctx, m.place, m.name, log, m.program, m.args()...)
	if err == nil {
		m.now = now
	}
	return err
}

// life returns the newest life.
func (m *member) life() (now *process.Process, asked, left bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.asked, m.left
}

// args returns the arguments of every life.
func (m *member) args() []string {
	args := append([]string{
		"train", "--run-id", runID, "--identity-secret-key-path", m.keyPath, "--bind-p2p-address", m.place.Address,
		"--allow-local-paths", "--allow-inner-data", "--events-dir", m.home, "--checkpoint-dir", filepath.Join(m.home, "checkpoints"),
		"--device", "cpu", "--max-blob-memory", "64", "--final-wait", "10s", "--known-servers", filepath.Join(m.home, "known"),
	}, m.p.host.flags...)
	threads := 1
	switch m.p.row.levels["parallelism"] {
	case "data":
		threads = 2
		args = append(args, "--data-parallelism", "2")
	case "tensor":
		threads = 2
		args = append(args, "--tensor-parallelism", "2")
	}
	args = append(args, "--threads", strconv.Itoa(threads))
	args = append(args, m.tracking()...)
	if m.name == m.p.members[0].name {
		args = append(args, m.first()...)
	}
	return args
}

// tracking returns the flags of the row's trackers.
func (m *member) tracking() []string {
	switch m.p.row.levels["trackers"] {
	case "files":
		return []string{"--tensorboard-dir", filepath.Join(m.home, "tensorboard"), "--metrics-file", m.metrics(), "--wandb-project", "matrix"}
	case "otlp":
		return []string{
			"--oltp-metrics-url", m.p.world.collector + "/v1/metrics", "--oltp-tracing-url", m.p.world.collector + "/v1/traces",
			"--oltp-logs-url", m.p.world.collector + "/v1/logs", "--oltp-report-interval", "1",
		}
	}
	return nil
}

// sawTheEnd reports whether the member's newest process saw the end of the run.
func (m *member) sawTheEnd() (ended bool) {
	for e, err := range event.Read(m.events()) {
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

func (m *member) metrics() string { return filepath.Join(m.home, "metrics.jsonl") }

// first returns the flags that only the first member has: for uploads and evaluations.
func (m *member) first() (args []string) {
	switch m.p.row.levels["uploads"] {
	case "hub":
		args = append(args, "--hub-repo", uploadRepo)
	case "bucket":
		args = append(args, "--gcs-bucket", uploadBucket)
	}
	if m.p.row.has("evaluations", "on") {
		args = append(args, "--eval-tasks", "arc_easy", "--eval-data", m.p.evaluations, "--eval-task-max-docs", "2", "--prompt-task")
	}
	return args
}
