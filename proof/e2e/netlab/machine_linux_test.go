package netlab

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestThisMachineIsAHost pings a host from this machine, and this machine from the host.
func TestThisMachineIsAHost(t *testing.T) {
	lab := newLab(t)
	link := Link{Delay: 20 * time.Millisecond}
	this, other := add(t, lab.AddThis, link), add(t, lab.Add, link)
	for _, pair := range [][2]*Host{{this, other}, {other, this}} {
		out, err := pair[0].run("ping " + startEcho(t, pair[1])).Output()
		took, parseErr := time.ParseDuration(strings.TrimSpace(string(out)))
		if err != nil || parseErr != nil || took < 40*time.Millisecond {
			t.Errorf("the ping took %q, want at least 40ms: %v", out, err)
		}
	}
}

// TestReach has a host that downloads a file from a server on the loopback address of this machine.
func TestReach(t *testing.T) {
	lab := newLab(t)
	this, other := add(t, lab.AddThis, Link{}), add(t, lab.Add, Link{})
	content := bytes.Repeat([]byte("psyche"), 50_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	if err := other.Reach(address.Port); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		err = other.inside(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, to)
			return err
		})
		return conn, err
	}}}
	t.Cleanup(client.CloseIdleConnections)
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || response.Body.Close() != nil || !bytes.Equal(got, content) {
		t.Errorf("the host got %d bytes, want %d: %v", len(got), len(content), err)
	}
	if sent := this.Traffic().Bytes; sent < int64(len(content)) {
		t.Errorf("%d bytes went over the link, want at least %d", sent, len(content))
	}
}

// TestReachNeedsThisMachine checks that a lab without this machine gives an error.
func TestReachNeedsThisMachine(t *testing.T) {
	lab := newLab(t)
	if err := add(t, lab.Add, Link{}).Reach(80); err == nil {
		t.Error("want an error")
	}
}
