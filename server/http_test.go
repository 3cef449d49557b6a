package server_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/server/servertest"
	"github.com/psyche-go/psyche/server/status"
)

// get asks the HTTP server and returns the status code and the body.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestHTTP(t *testing.T) {
	var web string
	o := options(t.TempDir())
	o.HTTPListen = "127.0.0.1:0"
	ready := make(chan net.Addr, 1)
	o.HTTPReady = func(a net.Addr) { ready <- a }
	r := servertest.Start(t, o)
	web = (<-ready).String()
	a := dial(t, r.Address, 1)
	submit(t, a, coordinator.Join{})
	await(t, a, "itself", func(s *coordinator.State) bool { return len(s.Pending) == 1 })

	if code, body := get(t, web, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	if code, body := get(t, web, "/state"); code != http.StatusOK || !strings.Contains(body, `"test"`) {
		t.Errorf("/state: %d %q", code, body)
	}
	code, body := get(t, web, "/state?run="+runID)
	var run status.Run
	if err := json.Unmarshal([]byte(body), &run); err != nil || code != http.StatusOK {
		t.Fatalf("/state?run=: %d, %v", code, err)
	}
	if run.RunID != runID || run.State != "WaitingForMembers" || len(run.Pending) != 1 || run.Pending[0] != backendtest.Key(1).ID().String() {
		t.Errorf("/state?run=: %+v", run)
	}
	if code, body := get(t, web, "/state?run=%3Cnowhere%3E"); code != http.StatusNotFound {
		t.Errorf("unknown run: %d %q", code, body)
	}
	_, body = get(t, web, "/metrics")
	for _, want := range []string{
		`psyche_server_actions_total{action="join",result="accepted",run="test"} 1`,
		`psyche_server_run_state{run="test",state="WaitingForMembers"} 1`,
		`psyche_server_run_participants{run="test"} 1`,
		`psyche_server_connections_total{result="accepted"} 1`,
		"psyche_server_sent_bytes_total", "psyche_server_commit_seconds_count", "go_goroutines", "psyche_server_run_journal_bytes",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
	response, err := http.Post("http://"+web+"/state", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", response.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHTTPConnectionsAreBounded holds as many as there may be.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	o := options("")
	o.HTTPListen = "127.0.0.1:0"
	ready := make(chan net.Addr, 1)
	o.HTTPReady = func(a net.Addr) { ready <- a }
	servertest.Start(t, o)
	web := (<-ready).String()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", web)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	closed := 0
	for _, c := range open[64:] {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			closed++
		}
	}
	if closed != 200-64 {
		t.Errorf("%d of 200 connections were closed", closed)
	}
}
