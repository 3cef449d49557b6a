package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// get sends a request to the HTTP server and returns the status code and the body.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: waitTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
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
			t.Errorf("/metrics does not contain %s", want)
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

// serveWeb starts a server and returns the address of its HTTP server.
func serveWeb(t *testing.T) string {
	t.Helper()
	o := options("")
	o.HTTPListen = "0.0.0.0:0"
	ready := make(chan net.Addr, 1)
	o.HTTPReady = func(a net.Addr) { ready <- a }
	servertest.Start(t, o)
	_, port, err := net.SplitHostPort((<-ready).String())
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}

// hold opens a number of connections from an address of this machine and sends nothing.
func hold(t *testing.T, web, from string, n int) (open []net.Conn) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		c, err := dialer.Dial("tcp", web)
		if err != nil {
			t.Skipf("this machine has no address %s: %v", from, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, c)
	}
	return open
}

// closed counts the connections that the server closes within a time.
func closed(open []net.Conn, within time.Duration) int {
	var n atomic.Int32
	var reading sync.WaitGroup
	deadline := time.Now().Add(within)
	for _, c := range open {
		reading.Go(func() {
			_ = c.SetReadDeadline(deadline)
			if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				n.Add(1)
			}
		})
	}
	reading.Wait()
	return int(n.Load())
}

// TestHTTPConnectionsAreBounded opens more connections than the maximum.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	web := serveWeb(t)
	open := hold(t, web, "127.0.0.1", 300)
	if n := closed(open, time.Second); n < 300-64-32 {
		t.Errorf("%d of 300 connections were closed, want %d", n, 300-64-32)
	}
}

// TestHTTPSlotsAreShared fills all slots from one address. It checks that a request from a second
// address is answered.
func TestHTTPSlotsAreShared(t *testing.T) {
	web := serveWeb(t)
	hold(t, web, "127.0.0.2", 300)
	for range 20 {
		if code, body := get(t, web, "/state"); code != http.StatusOK {
			t.Fatalf("/state: %d %q", code, body)
		}
	}
}

// TestProbesAreAnswered fills all slots from many addresses. It checks that /healthz still answers,
// and that other paths report that the server is busy.
func TestProbesAreAnswered(t *testing.T) {
	web := serveWeb(t)
	for i := range 70 {
		hold(t, web, fmt.Sprintf("127.0.1.%d", i+1), 1)
	}
	for range 10 {
		if code, body := get(t, web, "/healthz"); code != http.StatusOK || body != "ok\n" {
			t.Fatalf("/healthz: %d %q", code, body)
		}
	}
	if code, _ := get(t, web, "/state"); code != http.StatusServiceUnavailable {
		t.Errorf("/state: %d", code)
	}
}
