package p2p

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// pipeStream is a stream without a buffer.
type pipeStream struct{ net.Conn }

func (pipeStream) CloseWrite() error { return nil }
func (s pipeStream) Reset() error    { return s.Close() }

// TestReadersKeepPace checks that a member that reads an answer slowly but steadily gets it. A
// member that stops or is too slow is cut off, even if it was fast at first. Time that the server
// itself needs does not count.
func TestReadersKeepPace(t *testing.T) {
	tests := []struct {
		name    string
		fast    int // bytes read without a pause
		pause   time.Duration
		own     time.Duration // server's pause before each 64 KiB
		minimum time.Duration // minimum time until the stream is cut off; 0 if it is not cut off
		limit   time.Duration
	}{
		{name: "fast", fast: 1 << 30},
		{name: "a slow line", pause: 4 * time.Second / 5},
		{name: "an eighth of 0.25 Mbit/s", pause: 16 << 10 * time.Second / (250_000 / 8 / 8)},
		{name: "a slow server", pause: 4 * time.Second / 5, own: time.Minute},
		{name: "nothing", pause: time.Hour, minimum: time.Second, limit: 40 * time.Second},
		{name: "a trickle", pause: 40 * time.Second, minimum: time.Second, limit: 40 * time.Second},
		{name: "too slow", pause: 10 * time.Second, minimum: 5 * time.Second, limit: 200 * time.Second},
		{name: "nothing any more", fast: 1 << 20, pause: time.Hour, minimum: time.Second, limit: 40 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				done := make(chan struct{})
				go func() { // reads 16 KiB after each pause
					defer close(done)
					for read := 0; ; {
						if read >= test.fast {
							time.Sleep(test.pause)
						}
						n, err := theirs.Read(make([]byte, 16<<10))
						if read += n; err != nil {
							return
						}
					}
				}()
				s := newPacedStream(pipeStream{ours}, new(atomic.Int32))
				if err := s.until(time.Now().Add(24 * time.Hour)); err != nil {
					t.Fatal(err)
				}
				var err error
				begun := time.Now()
				for range 32 {
					time.Sleep(test.own)
					if _, err = s.Write(make([]byte, pacePiece)); err != nil {
						break
					}
				}
				took := time.Since(begun)
				_ = ours.Close()
				<-done
				if cut := errors.Is(err, os.ErrDeadlineExceeded); cut != (test.minimum > 0) || cut && (took < test.minimum || took > test.limit) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestEndedStream checks that a stream stays ended, even if a deadline is set afterwards.
func TestEndedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		s := newPacedStream(pipeStream{ours}, new(atomic.Int32))
		if err := s.until(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		written := make(chan error)
		go func() {
			_, err := s.Write(make([]byte, 1))
			written <- err
		}()
		synctest.Wait()
		s.end()
		if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a blocked write: %v", err)
		}
		if _, err := s.Write(nil); !errors.Is(err, errRefused) {
			t.Errorf("write: %v", err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		if err := s.until(time.Now().Add(time.Hour)); !errors.Is(err, errRefused) {
			t.Errorf("new deadline: %v", err)
		}
	})
}

// TestSlowRequest checks that a stream without a request is not served, does not take a slot, and
// ends.
func TestSlowRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := StreamLimits{PerPeer: 2, Total: 1, Timeout: time.Minute, Request: 2}
		v := &streamServer{
			node: &Node{life: life{ctx: t.Context()}}, limits: limits, queue: newQueue(limits.PerPeer, limits.Total),
			begin: limits.begin(func(_ context.Context, _ identity.ID, s Stream) error {
				request := make([]byte, limits.Request)
				if _, err := io.ReadFull(s, request); err != nil {
					return err
				}
				_, err := s.Write(request)
				return err
			}),
		}
		slow := make(chan error)
		ours, theirs := net.Pipe()
		go func() { slow <- v.exchange(identity.ID{1}, pipeStream{ours}) }()
		if _, err := theirs.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		other, peer := net.Pipe()
		done := make(chan error)
		go func() { done <- v.exchange(identity.ID{2}, pipeStream{other}) }()
		if _, err := peer.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 2)
		if _, err := io.ReadFull(peer, answer); err != nil || string(answer) != "hi" {
			t.Errorf("got %q, %v; want nil error and string(answer) == \"hi\"", answer, err)
		}
		if err := <-done; err != nil || time.Since(begun) > 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := <-slow; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) > requestTime {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// TestSlowReadersAreEvicted checks that a slow reader gets a long answer if no other member needs
// its slot. If a member without a slot needs one, the slow reader keeps its slot for a few seconds,
// and longer if it is not that slow or if the server itself was slow.
func TestSlowReadersAreEvicted(t *testing.T) {
	tests := []struct {
		name    string
		rate    int           // reader's rate in bytes per second
		own     time.Duration // server's pause before each 64 KiB
		after   time.Duration // time at which another member comes; 0 if none comes
		refused bool          // whether the reader is refused; otherwise the other member is
	}{
		{"slow, alone", 20 << 10, 0, 0, false},
		{"slow, at the start", 20 << 10, 0, slowTime - time.Second, false},
		{"slow", 20 << 10, 0, slowTime + time.Second, true},
		{"not slow", 128 << 10, 0, slowTime + time.Second, false},
		{"a slow server", 128 << 10, 2 * time.Second, 2 * slowTime, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := StreamLimits{PerPeer: 1, Total: 1, Timeout: time.Hour, Request: 1}
				v := &streamServer{
					node: &Node{life: life{ctx: t.Context()}}, limits: limits, queue: newQueue(limits.PerPeer, limits.Total),
					begin: limits.begin(func(_ context.Context, _ identity.ID, s Stream) error {
						for range 32 {
							time.Sleep(test.own)
							if _, err := s.Write(make([]byte, 64<<10)); err != nil {
								return err
							}
						}
						return nil
					}),
				}
				reader := begin(v, identity.ID{1}, test.rate)
				if test.after > 0 {
					time.Sleep(test.after)
					if err := <-begin(v, identity.ID{2}, 1<<30); errors.Is(err, errRefused) == test.refused {
						t.Errorf("the other member: %v", err)
					}
				}
				if err := <-reader; errors.Is(err, errRefused) != test.refused || err != nil && !test.refused {
					t.Errorf("the reader: %v", err)
				}
			})
		})
	}
}

// begin makes v serve a member that reads the answer at a rate. It returns a channel for the
// result.
func begin(v *streamServer, from identity.ID, rate int) <-chan error {
	ours, theirs := net.Pipe()
	done, read := make(chan error, 1), make(chan struct{})
	go func() {
		err := v.exchange(from, pipeStream{ours})
		_ = ours.Close()
		<-read
		done <- err
	}()
	go func() {
		defer close(read)
		const piece = 4 << 10
		_, err := theirs.Write([]byte{0})
		for err == nil {
			time.Sleep(piece * time.Second / time.Duration(rate))
			_, err = theirs.Read(make([]byte, piece))
		}
	}()
	return done
}
