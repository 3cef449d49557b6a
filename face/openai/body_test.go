package openai

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/net/admission"
)

// pipes is a listener whose connections are in memory, so that a test can use its own clock.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.ended)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// distant is a connection from a given address.
type distant struct {
	net.Conn
	from *net.TCPAddr
}

func (d distant) RemoteAddr() net.Addr { return d.from }

// dial connects from 198.51.100.host.
func (p *pipes) dial(host int) net.Conn {
	near, far := net.Pipe()
	p.conns <- distant{far, &net.TCPAddr{IP: net.IPv4(198, 51, 100, byte(host)), Port: 1024}}
	return near
}

// inMemory serves a model that writes "ok", in a bubble, until the test in it returns.
func inMemory(t *testing.T, room int, test func(*pipes)) {
	synctest.Test(t, func(t *testing.T) {
		m := described(t, says("ok"))
		m.Context = room
		s, err := New(m, limits, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		p := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, p) }()
		test(p)
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// post sends a request of size bytes, chunk bytes per second, until the other side ends it. It
// returns the answer's status, or 0.
func post(conn net.Conn, size, chunk int) (status int) {
	sent := make(chan struct{})
	defer func() { _ = conn.Close(); <-sent }()
	const before, after = `{"model":"toy","prompt":"`, `"}`
	text := before + strings.Repeat("a", size-len(before)-len(after)) + after
	go func() {
		defer close(sent)
		_, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: toy\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
		for ; err == nil && text != ""; time.Sleep(time.Second) {
			n := min(chunk, len(text))
			_, err = io.WriteString(conn, text[:n])
			text = text[n:]
		}
	}()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode
}

// TestSlowBodiesHoldNoSlot checks that requests are answered while twenty connections send one
// byte per second.
func TestSlowBodiesHoldNoSlot(t *testing.T) {
	inMemory(t, 100, func(p *pipes) {
		slow := make(chan int)
		for range 20 {
			conn := p.dial(1)
			go func() { slow <- post(conn, 1000, 1) }()
		}
		time.Sleep(time.Second)
		if status := post(p.dial(1), 60, 60); status != http.StatusOK {
			t.Errorf("an honest request gets %d", status)
		}
		began := time.Now()
		for range 20 {
			if status := <-slow; status != http.StatusRequestTimeout {
				t.Errorf("a slow request gets %d", status)
			}
		}
		if took := time.Since(began); took > readTimeout+time.Second {
			t.Errorf("slow ones are read for %v", took)
		}
	})
}

// TestSlowLink checks that 10 KB per second are fast enough, even for a body that takes most of a
// minute.
func TestSlowLink(t *testing.T) {
	inMemory(t, maxBody, func(p *pipes) {
		for _, size := range []int{20_000, 500_000} {
			if status := post(p.dial(1), size, 10_000); status != http.StatusOK {
				t.Errorf("%d bytes at 10 KB a second: %d", size, status)
			}
		}
	})
}

// TestBodiesOfOneAddress checks that a client that sends as many bodies as the server reads
// concurrently blocks only other clients of its own address.
func TestBodiesOfOneAddress(t *testing.T) {
	inMemory(t, 1<<20, func(p *pipes) {
		slow := make(chan int)
		for range maxBodies {
			conn := p.dial(1)
			go func() { slow <- post(conn, 100_000, 10_000) }()
		}
		time.Sleep(time.Second)
		if status := post(p.dial(1), 60, 60); status != http.StatusTooManyRequests {
			t.Errorf("one more of the same address gets %d", status)
		}
		if status := post(p.dial(2), 60, 60); status != http.StatusOK {
			t.Errorf("a different address gets %d", status)
		}
		statuses := make(map[int]int)
		for range maxBodies {
			statuses[<-slow]++
		}
		if statuses[http.StatusOK] == 0 || statuses[http.StatusOK]+statuses[http.StatusTooManyRequests] != maxBodies {
			t.Errorf("statuses of the earlier requests: %v", statuses)
		}
	})
}

// TestSilentConnections checks that a client that opens all available connections and sends nothing
// blocks no other address and interrupts no answer.
func TestSilentConnections(t *testing.T) {
	inMemory(t, 100, func(p *pipes) {
		began := time.Now()
		for range maxConnections + 1 {
			conn := p.dial(1)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
		if status := post(p.dial(2), 60, 60); status != http.StatusOK || time.Since(began) > 2*time.Second {
			t.Errorf("a different address gets %d after %v", status, time.Since(began))
		}
	})
}

// TestAnswerNeedsNoSlot checks that a connection with an answer in progress is never evicted.
func TestAnswerNeedsNoSlot(t *testing.T) {
	d := limitedListener{limiter: admission.NewLastingLimiter(1)}
	near, far := net.Pipe()
	v := &visitor{Conn: far, limiter: d.limiter}
	v.slot = d.limiter.Enter(far.RemoteAddr(), v.evict)
	answered := v.answering()
	if d.limiter.Enter(far.RemoteAddr(), func() { t.Error("the newer connection is evicted") }) == nil {
		t.Error("no slot is free while the only connection is being answered")
	}
	answered()
	_ = v.Close()
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	v.answering()() // of a connection that was closed in the meantime
	other := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1)}
	if d.limiter.Enter(other, func() {}) != nil {
		t.Error("there is room for two")
	}
}
