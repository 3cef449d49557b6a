package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// crowdRun returns the options of the server process of TestCrowd: the defaults.
func crowdRun(o *server.Options) {
	o.Runs = []server.Genesis{backendtest.Genesis(runID, 3)}
	o.HTTPListen = "127.0.0.1:0"
}

// TestCrowd keeps 512 idle observers from 512 addresses and 512 silent connections. The run's
// administrator must still be served at once, and the server's memory must not grow much. On two cores,
// the administrator waited 0.2 s, and the memory grew by 25 to 28 MiB.
func TestCrowd(t *testing.T) {
	const crowd, mostMemory = 512, 64 << 20
	dir := t.TempDir()
	host := startChild(t, "crowd", dir, "127.0.0.1:0")
	defer func() { host.end() }()
	authority, err := identity.LoadKeyFile(filepath.Join(dir, server.HostKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	before := residentMemory(t, host.web)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	idle := 0
	var connecting, reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	slots := make(chan struct{}, 8)
	for i := range crowd {
		connecting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if idles(ctx, t, host.address, i, &reading) {
				mu.Lock()
				idle++
				mu.Unlock()
			}
		})
	}
	connecting.Wait()
	for i := range crowd {
		if c, err := dialFrom(ctx, host.address, 8, i); err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
	}
	began := time.Now()
	admin, err := tcp.Dial(ctx, tcp.Options{Addr: host.address, RunID: runID, Key: authority, Observe: true})
	if err != nil {
		t.Fatalf("with %d observers: %v", idle, err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.Submit(ctx, coordinator.SetPaused{Paused: true}); err != nil {
		t.Fatal(err)
	}
	took, memory := time.Since(began), residentMemory(t, host.web)-before
	t.Logf("%d observers and %d silent connections: the administrator was done after %v, memory grew by %.1f MiB", idle, crowd, took.Round(time.Millisecond), memory/(1<<20))
	if raceDetector {
		memory = 0 // the race detector uses additional memory
	}
	if idle != crowd || took > time.Second || memory > mostMemory {
		t.Errorf("want %d observers, 1 s and %d MiB", crowd, mostMemory>>20)
	}
}

// dialFrom connects from the i-th address of a network of this machine.
func dialFrom(ctx context.Context, address string, network, i int) (net.Conn, error) {
	from := net.IPv4(127, byte(network), byte(i/200), byte(1+i%200))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: waitTimeout}
	return d.DialContext(ctx, "tcp", address)
}

// idles connects as an observer with a separate key and stays connected until ctx ends. It reports
// whether it was admitted.
func idles(ctx context.Context, t *testing.T, address string, i int, reading *sync.WaitGroup) bool {
	socket, err := dialFrom(ctx, address, 9, i)
	if err != nil {
		t.Log(err)
		return false
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() })
	var host identity.ID
	s := secure.Client(socket, func(id identity.ID) error { host = id; return nil })
	r := frame.NewReader(bufio.NewReader(s))
	_, payload, err := r.Next(frame.MaxHello)
	if err != nil {
		t.Log(err)
		return false
	}
	challenge, err := frame.DecodeChallenge(payload)
	if err != nil {
		t.Log(err)
		return false
	}
	key := identity.FromSeed([identity.SeedSize]byte{byte(i), byte(i >> 8), 77})
	hello := frame.Hello{Role: frame.RoleObserver, RunID: runID}.Sign(nil, key, challenge.Nonce, host)
	if _, err := s.Write(frame.Append(nil, frame.TypeHello, hello)); err != nil {
		t.Log(err)
		return false
	}
	if kind, payload, err := r.Next(frame.MaxToClient); err != nil || kind != frame.TypeWelcome {
		t.Logf("frame %d %q, %v", kind, payload, err)
		return false
	}
	reading.Go(func() {
		for {
			kind, _, err := r.Next(frame.MaxToClient)
			if err != nil {
				return
			}
			if kind == frame.TypePing {
				_, _ = s.Write(frame.Append(nil, frame.TypePong, nil))
			}
		}
	})
	return true
}

// residentMemory returns the memory that a server process reports.
func residentMemory(t *testing.T, web string) float64 {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not report the memory of a process")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", web), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "process_resident_memory_bytes "); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return bytes
		}
	}
	t.Fatal("/metrics does not report the memory")
	return 0
}
