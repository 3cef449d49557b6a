package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// startDash serves a page until the test ends, and returns its URL.
func startDash(t *testing.T, args ...string) (address string) {
	t.Helper()
	address, _ = startDashNoting(t, args...)
	return address
}

// startDashNoting is like startDash, and also returns the lines before the URL.
func startDashNoting(t *testing.T, args ...string) (address, before string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	in, errs := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"dash", "--http-addr=127.0.0.1:0"}, args...), console{io.Discard, errs})
		_ = errs.Close()
	}()
	t.Cleanup(func() {
		stop()
		if got := <-code; got != exitOK {
			t.Errorf("psyche dash: exit code %d", got)
		}
	})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, at, found := strings.Cut(lines.Text(), "the page is at "); found {
			go func() { _, _ = io.Copy(io.Discard, in) }()
			return strings.TrimSuffix(at, "/"), before
		}
		before += lines.Text() + "\n"
	}
	t.Fatal("psyche dash printed no address of its page")
	return "", ""
}

// TestDashOfEmptyFolder checks that the command explains a folder without runs.
func TestDashOfEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	if _, before := startDashNoting(t, dir); !strings.Contains(before, "no run log in "+dir) {
		t.Errorf("printed %q", before)
	}
	if err := dashtest.Write(filepath.Join(dir, "first.journal"), dashtest.Options{RunID: "first", Members: 3, Rounds: 4, RoundsPerEpoch: 4}); err != nil {
		t.Fatal(err)
	}
	if _, before := startDashNoting(t, dir); before != "" {
		t.Errorf("with a run, printed %q", before)
	}
}

// until polls the page for a run until a condition holds.
func until[T any](t *testing.T, address string, isWanted func(T) bool) T {
	t.Helper()
	var body []byte
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		response, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var shown T
		if response.StatusCode == http.StatusOK && json.NewDecoder(bytes.NewReader(body)).Decode(&shown) == nil && isWanted(shown) {
			return shown
		}
	}
	t.Fatalf("%s: the page still shows %.2000s", address, body)
	panic("not reached")
}

// TestDashOfFolders checks that the page shows the runs in the given folders, each by its name.
func TestDashOfFolders(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for name, dir := range map[string]string{"first": one, "second": two} {
		if err := dashtest.Write(filepath.Join(dir, name+".journal"), dashtest.Options{RunID: name, Members: 3, Rounds: 4, RoundsPerEpoch: 4}); err != nil {
			t.Fatal(err)
		}
	}
	type listed struct {
		Runs []struct {
			Key   string `json:"key"`
			State string `json:"run_state"`
		} `json:"runs"`
	}
	page := startDash(t, one, two)
	until(t, page+"/api/runs", func(l listed) bool {
		return len(l.Runs) == 2 && l.Runs[0].Key == "first" && l.Runs[0].State == "Finished" && l.Runs[1].Key == "second" && l.Runs[1].State == "Finished"
	})
}

// TestDashOfAChain checks that the page finds the runs of a program, follows their events, and
// shows their cost.
func TestDashOfAChain(t *testing.T) {
	a := startChain(t)
	main := a.key(2, "9")
	a.deploy(main)
	a.does(exitOK, "it is paused", "run", "create", "--state", sampleState, "--run-id", "p", "--yes", "--keypair", main)
	type shownRun struct {
		Source string `json:"source"`
		Status struct {
			RunID string `json:"run_id"`
			State string `json:"run_state"`
		} `json:"status"`
		History struct {
			Events []struct {
				Kind   string `json:"kind"`
				Detail string `json:"detail"`
			} `json:"events"`
		} `json:"history"`
		Costs struct {
			Transactions int    `json:"transactions"`
			Lamports     uint64 `json:"lamports"`
		} `json:"costs"`
	}
	page := startDash(t, "--rpc", a.rpc, "--program-id", a.program, "--dir", a.path("dash"), "--every=1s")
	before := until(t, page+"/api/run?run=p", func(r shownRun) bool { return r.Status.State == "Paused" })
	if before.Status.RunID != "p" || !strings.Contains(before.Source, "on a chain, account ") || before.Costs.Transactions == 0 || before.Costs.Lamports == 0 {
		t.Errorf("the run before it resumes: %+v", before)
	}
	a.does(exitOK, "resumes", "run", "set-paused", "--resume", "--run-id", "p", "--keypair", main, "--commitment", "confirmed")
	after := until(t, page+"/api/run?run=p", func(r shownRun) bool { return len(r.History.Events) > len(before.History.Events) })
	if e := after.History.Events[0]; e.Kind != "authority" || e.Detail != "resume" || after.Costs.Transactions <= before.Costs.Transactions {
		t.Errorf("after it resumes: %+v", after)
	}
}
