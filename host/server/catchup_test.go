package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

const (
	slowLink   = 31 << 10 // bytes per second of 0.25 Mbit/s
	catchUpEnd = 5 * time.Minute
)

// slowReader reads rate bytes per second, or nothing if rate is zero.
type slowReader struct {
	from io.Reader
	rate int
	ctx  context.Context
}

func (r slowReader) Read(b []byte) (int, error) {
	if r.rate == 0 {
		<-r.ctx.Done()
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.Read(b[:min(len(b), 4<<10)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(r.rate))
	return n, err
}

// catcher is a client that requests the whole log.
type catcher struct {
	key  identity.Key
	role frame.Role
	rate int // bytes per second; negative: unlimited
	from net.Addr

	reads bool // count records, not frames
}

// run returns the number of records or frames that the client received before it was live.
func (c catcher) run(ctx context.Context, connectFrom func(net.Addr) *peer) (records int, err error) {
	p := connectFrom(c.from)
	defer context.AfterFunc(ctx, func() { _ = p.socket.Close() })()
	kind, payload, err := p.reader.Next(frame.MaxToClient)
	if err != nil || kind != frame.TypeChallenge {
		return 0, errors.Join(err, errNotServed)
	}
	challenge, err := frame.DecodeChallenge(payload)
	if err != nil {
		return 0, err
	}
	hello := frame.Hello{Role: c.role, RunID: joinRun}.Sign(nil, c.key, challenge.Nonce, p.server)
	if _, err := p.socket.Write(frame.Append(nil, frame.TypeHello, hello)); err != nil {
		return 0, err
	}
	if kind, _, err = p.reader.Next(frame.MaxToClient); err != nil || kind != frame.TypeWelcome {
		return 0, errors.Join(err, errNotServed)
	}
	if _, err := p.socket.Write(frame.Append(nil, frame.TypeFollow, frame.Follow{Index: 2}.AppendTo(nil))); err != nil {
		return 0, err
	}
	if c.rate >= 0 {
		p.reader = frame.NewReader(slowReader{p.socket, c.rate, ctx})
	}
	pings := make(chan struct{}, 1000)
	var answering sync.WaitGroup
	answering.Go(func() { // a pipe has no buffer, so a reader that answers would block the server
		for range pings {
			_, _ = p.socket.Write(frame.Append(nil, frame.TypePong, nil))
		}
	})
	defer answering.Wait()
	defer close(pings)
	defer func() { _ = p.socket.Close() }()
	for {
		kind, payload, err := p.reader.Next(frame.MaxToClient)
		switch {
		case err != nil:
			return records, err
		case kind == frame.TypePing:
			pings <- struct{}{}
		case kind == frame.TypeRecords:
			var r frame.Records
			if !c.reads {
				records++
			} else if r, err = frame.DecodeRecords(payload, nil); err == nil {
				err = r.Each(func([]byte) error { records++; return nil })
			}
		case kind == frame.TypeWindow:
			return records, nil
		}
		if err != nil {
			return records, err
		}
	}
}

var errNotServed = errors.New("not served")

// address returns the n-th address of an IPv4 network or of a /48 network of IPv6. The latter
// addresses are in different /64 networks.
func address(ipv6 bool, network byte, n int) net.Addr {
	if ipv6 {
		return &net.TCPAddr{IP: net.IP{0x20, 1, 0xd, 0xb8, 0, network, byte(n >> 8), byte(n), 15: 1}}
	}
	return &net.TCPAddr{IP: net.IPv4(10, network, byte(n>>8), byte(n))}
}

// crowd keeps observers connected that read slowly, each from a different address. They reconnect
// after a disconnection.
type crowd struct {
	size, rate int
	from       func(n int) net.Addr
	served     atomic.Int64 // connections that followed the log
}

func (c *crowd) start(ctx context.Context, connectFrom func(net.Addr) *peer, running *sync.WaitGroup) {
	for n := range c.size {
		running.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				key := identity.FromSeed([identity.SeedSize]byte{byte(n), byte(n >> 8), byte(life), 99})
				if records, _ := (catcher{key, frame.RoleObserver, c.rate, c.from(n), false}).run(ctx, connectFrom); records > 0 {
					c.served.Add(1)
				}
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
}

// TestSlowObserversDoNotDelayMembers measures how long a member needs to catch up, alone and while
// observers read the log slowly or not at all. Sockets have no buffers here, and the clock is
// virtual. A member at 0.25 Mbit/s needed 1.06 times its time alone. A fast member needed up to 1.7
// times if the observers used the burst of LogBytesPerSecond.
func TestSlowObserversDoNotDelayMembers(t *testing.T) {
	dir := t.TempDir()
	h := makeHistory(t, dir, 8, 900)
	want, size := int(h.store.log.Head().Index)-2, h.store.journal.Size()
	if err := h.store.close(); err != nil {
		t.Fatal(err)
	}
	member := catcher{joinKey(1), frame.RoleParticipant, -1, address(false, 9, 9), true}
	slowMember, newcomer := member, catcher{joinKey(999), frame.RoleParticipant, -1, address(false, 9, 8), true}
	slowMember.rate = slowLink
	oneAddress := func(int) net.Addr { return address(false, 1, 1) }
	oneSite := func(n int) net.Addr { return address(true, 1, n) }
	sites := func(n int) net.Addr { return address(false, 1, n) }
	for _, test := range []struct {
		name   string
		client catcher
		crowd  *crowd
		most   float64 // maximum, in multiples of the time without a crowd
	}{
		{"member, 64 slow observers of one address", member, &crowd{size: 64, rate: 70 << 10, from: oneAddress}, 2},
		{"member, 100 observers of many addresses that hardly read", member, &crowd{size: 100, rate: 4 << 10, from: sites}, 2},
		{"member at 0.25 Mbit/s, 100 slow observers of many addresses", slowMember, &crowd{size: 100, rate: slowLink, from: sites}, 2},
		{"newcomer, 64 slow observers of one IPv6 site", newcomer, &crowd{size: 64, rate: slowLink, from: oneSite}, 6},
		{"newcomer, 600 observers of one IPv6 site that hardly read", newcomer, &crowd{size: 600, rate: 4 << 10, from: oneSite}, 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubbleOfAddresses(t, func(o *Options) {
				o.Runs, o.SaveStateDir, o.LogBytesPerSecond, o.SnapshotEvery = nil, dir, 64<<10, 1<<30
				o.MaxUnknown = 1000
				o.Now = func() uint64 { return h.now }
			}, func(t *testing.T, connect func(net.Addr) *peer) {
				connectFrom := inTurn(connect)
				ctx, cancel := context.WithCancel(t.Context())
				measure := func() time.Duration {
					began := time.Now()
					limited, done := context.WithTimeout(ctx, catchUpEnd)
					defer done()
					records, err := test.client.run(limited, connectFrom)
					if err != nil || records != want {
						t.Errorf("%d records of %d, %v", records, want, err)
					}
					return time.Since(began)
				}
				alone := measure()
				var running sync.WaitGroup
				test.crowd.start(ctx, connectFrom, &running)
				time.Sleep(15 * time.Second)
				crowded := measure()
				cancel()
				running.Wait()
				synctest.Wait()
				t.Logf("%d records, %d KiB: %v alone, %v with the crowd, %.2f times; the crowd was served %d times", want, size>>10,
					alone.Round(time.Millisecond), crowded.Round(time.Millisecond), crowded.Seconds()/alone.Seconds(), test.crowd.served.Load())
				if crowded.Seconds() > test.most*alone.Seconds() {
					t.Errorf("want at most %.0f times", test.most)
				}
			})
		})
	}
}

// TestClaimedKeyIsRefused checks that a client cannot claim a member's key without its signature.
func TestClaimedKeyIsRefused(t *testing.T) {
	for _, role := range []frame.Role{frame.RoleParticipant, frame.RoleObserver} {
		bubble(t, nil, func(t *testing.T, connect func() *peer) {
			p, member, attacker := connect(), backendtest.Key(1).ID(), backendtest.Key(66)
			p.challenge()
			hello := frame.Hello{Role: role, RunID: hostileRun}.Sign(nil, attacker, p.nonce, p.server)
			own := attacker.ID()
			p.send(frame.TypeHello, bytes.Replace(hello, own[:], member[:], 1))
			p.refused(frame.RefusedMalformed)
		})
	}
}

// TestClientThatFallsBehindCatchesUp checks a live client that does not read while more records
// arrive than the server keeps in memory for it.
func TestClientThatFallsBehindCatchesUp(t *testing.T) {
	const host, changes = 50, maxPushes + 16
	bubble(t, func(o *Options) { o.Key = backendtest.Key(host) }, func(t *testing.T, connect func() *peer) {
		authority, client := connect(), connect().enter(1)
		authority.greet(host, frame.RoleObserver)
		authority.welcome()
		client.send(frame.TypeFollow, frame.Follow{Index: 1}.AppendTo(nil))
		f := livePeer{peer: client}
		f.readUntil(func() bool { return f.windows == 1 })
		before := f.index
		for i := range changes {
			time.Sleep(time.Millisecond) // the nonce is a time
			if code := authority.submitted(coordinator.SetPaused{Paused: i%2 == 0}); code != 0 {
				t.Errorf("change %d: %v", i, code)
			}
		}
		f.readUntil(func() bool { return f.index >= before+changes && f.windows == 2 })
		time.Sleep(time.Millisecond)
		authority.submit(coordinator.SetPaused{Paused: true})
		f.readUntil(func() bool { return f.index >= before+changes+1 })
		if f.windows != 2 {
			t.Errorf("%d windows, want the first and one more: the client is live again", f.windows)
		}
	})
}

// livePeer follows a log.
type livePeer struct {
	*peer
	window  []byte
	windows int
	index   uint64 // records that the client has
}

func (f *livePeer) readUntil(done func() bool) {
	f.t.Helper()
	for !done() {
		kind, payload, err := f.reader.Next(frame.MaxToClient)
		if err != nil {
			f.t.Fatalf("after %d records and %d windows: %v", f.index, f.windows, err)
		}
		switch kind {
		case frame.TypeWindow:
			f.window, err = frame.DecodeWindow(payload)
			f.windows++
		case frame.TypeRecords:
			var r frame.Records
			if r, err = frame.DecodeRecords(payload, f.window); err == nil {
				f.index = r.First
				err = r.Each(func([]byte) error { f.index++; return nil })
				f.window = frame.Slide(f.window, r.Raw)
			}
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// inTurn returns a function that connects for one goroutine at a time.
func inTurn(connect func(net.Addr) *peer) func(net.Addr) *peer {
	var connecting sync.Mutex
	return func(from net.Addr) *peer {
		connecting.Lock()
		defer connecting.Unlock()
		return connect(from)
	}
}
