package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/event"
)

// checkExtras checks uploads, evaluations and metrics.
func (p *play) checkExtras(a *account) error {
	if !p.row.has("uploads", "none") {
		if err := p.checkUpload(a); err != nil {
			return err
		}
	}
	if p.row.has("evaluations", "on") && !p.row.has("results", "dummy") && a.evaluated == 0 {
		p.found("evaluations", "%s has no evaluation results", p.members[0].Name)
	}
	switch p.row.levels["trackers"] {
	case "otlp":
		if p.world.reports.Load() == 0 {
			p.found("trackers", "the OpenTelemetry collector received no reports")
		}
	case "files":
		for _, pattern := range []string{p.members[0].metrics(), filepath.Join(p.members[0].Dir, "tensorboard", "*"), filepath.Join(p.dir, "wandb", "*")} {
			if found, err := filepath.Glob(pattern); err != nil || len(found) == 0 {
				p.found("trackers", "no file matches %s", pattern)
			}
		}
	}
	return nil
}

// checkUpload requires that the first member's upload location has the final model.
func (p *play) checkUpload(a *account) error {
	text := p.world.hub.Files(uploadRepo, "main")[checkpoint.FactsFile]
	if p.row.has("uploads", "bucket") {
		steps, _ := p.row.steps()
		for name, content := range p.world.buckets.Objects(uploadBucket) {
			if strings.HasSuffix(name, "step"+strconv.Itoa(steps)+"/"+checkpoint.FactsFile) {
				text = content
			}
		}
	}
	if text == nil {
		p.found("uploads", "the final model was not uploaded")
		return nil
	}
	facts, err := checkpoint.ParseFacts(text)
	if err != nil {
		return err
	}
	if _, same := a.digests[facts.Digest]; !same {
		p.found("uploads", "the uploaded model has step %d and digest %.8s, which no member ended with", facts.Step, facts.Digest)
	}
	return nil
}

// phase is one phase of a run.
type phase struct {
	name string
	step uint32
	took time.Duration
}

// longestPhase returns the longest phase that one member saw, except phases that wait for absent
// members.
func longestPhase(log string) (longest phase, err error) {
	var now phase
	var since time.Time
	for e, err := range event.Read(log) {
		if err != nil {
			return longest, err
		}
		switch body := e.Body.(type) {
		case event.Started:
			now = phase{}
		case event.State:
			if now.name == body.RunState && now.step == body.Step {
				continue
			}
			if now.took = e.Time.Sub(since); now.name != "" && now.name != "WaitingForMembers" && now.took > longest.took {
				longest = now
			}
			now, since = phase{name: body.RunState, step: body.Step}, e.Time
		}
	}
	return longest, nil
}

// leftovers searches for leftovers after everything has ended: panics in the output, processes, and
// temporary or incomplete files.
func (p *play) leftovers() {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "*", "*.log"))
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			p.found("log", "%v", err)
		}
		for _, sign := range []string{"panic:", "goroutine ", "fatal error:", "SIGSEGV", "DATA RACE"} {
			if bytes.Contains(text, []byte(sign)) {
				p.found("panic", "%s contains %q", log, sign)
			}
		}
	}
	for _, process := range processesOf(p.dir) {
		p.found("left", "a process still runs: %s", process)
	}
	if p.row.has("kills", "client") { // killed processes could not clean up
		return
	}
	_ = filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(p.dir, path)
		base := filepath.Base(path)
		switch {
		case err != nil || path == p.world.tmp:
		case filepath.Dir(path) == p.world.tmp,
			strings.HasPrefix(base, ".upload-"), strings.HasPrefix(base, ".probe-"), strings.HasSuffix(base, ".tmp"), strings.HasSuffix(base, ".partial"):
			p.found("left", "temporary file or folder left: %s", name)
		}
		return nil
	})
}

// processesOf returns the processes with a folder in their environment, if the system shows it.
func processesOf(dir string) (found []string) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("="+dir+string(filepath.Separator))) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found, fmt.Sprintf("%s %s", filepath.Base(filepath.Dir(path)), bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
	}
	return found
}
