package byzantine

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// Attack is the host's attack.
type Attack int

// The attacks.
const (
	Fork         Attack = iota // every other client sees rounds with different seeds
	FalseReport                // writes reports of a checkpoint without the members' signatures
	OmitAction                 // every other client sees a history without one of the actions
	OtherGenesis               // shows reconnecting clients a different run with the same name
)

// Options configure a Host.
type Options struct {
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	Attack  Attack
	After   uint32 // step from which on it attacks
}

// Host is a Byzantine host.
type Host struct {
	options  Options
	key      identity.Key
	listener net.Listener
	running  sync.WaitGroup
	done     chan struct{}

	mu       sync.Mutex
	branches [2]*branch
	conns    map[*conn]bool
	joined   int
	attacked bool
}

// branch is one history of the run.
type branch struct {
	*core.Host
	records [][]byte
}

// conn is a client's connection.
type conn struct {
	net.Conn
	id     identity.ID
	addrs  []string
	branch int
	sent   uint64 // records; 0: it does not follow the log
	shown  bool   // a head was sent
}

// write sends a frame. It ignores errors, because the reader of the connection notices its end.
func (c *conn) write(kind frame.Type, payload []byte) {
	_, _ = c.Write(frame.Append(nil, kind, payload))
}

// Listen starts a host on the loopback interface.
func Listen(o Options) (*Host, error) {
	h := &Host{options: o, key: identity.FromSeed([identity.SeedSize]byte{66}), conns: make(map[*conn]bool), done: make(chan struct{})}
	config, err := secure.ServerConfig(h.key)
	if err != nil {
		return nil, err
	}
	if err = h.begin(1); err != nil {
		return nil, err
	}
	if h.listener, err = tls.Listen("tcp", "127.0.0.1:0", config); err != nil {
		return nil, err
	}
	h.running.Go(h.accept)
	h.running.Go(h.tick)
	return h, nil
}

// begin starts both histories of the run, with a salt.
func (h *Host) begin(salt byte) error {
	state, err := h.options.Genesis(coordinator.ClientID(h.key.ID()))
	if err != nil {
		return err
	}
	draws := hashchain.New([32]byte{salt}, 1<<10)
	state.DrawCommitment = draws.Commitment()
	g, err := follow.NewGenesis(h.key, [32]byte{salt}, &state)
	if err != nil {
		return err
	}
	for i := range h.branches {
		log, err := follow.Begin(g)
		if err != nil {
			return err
		}
		h.branches[i] = &branch{Host: core.New(log, core.Now{Time: time.Now()}, core.Options{
			Draws:      draws,
			Connection: func(identity.ID) (from core.Origin, live bool) { return from, true }, // it withdraws no client
		})}
	}
	return nil
}

// Addr returns the host's address.
func (h *Host) Addr() string { return h.listener.Addr().String() }

// Close ends the host.
func (h *Host) Close() {
	close(h.done)
	_ = h.listener.Close()
	h.mu.Lock()
	h.hangUp()
	h.mu.Unlock()
	h.running.Wait()
}

// hangUp disconnects all clients. The caller holds mu.
func (h *Host) hangUp() {
	for c := range h.conns {
		_ = c.Close()
	}
}

func (h *Host) accept() {
	for {
		socket, err := h.listener.Accept()
		if err != nil {
			return
		}
		h.running.Go(func() { h.serve(&conn{Conn: socket}) })
	}
}

// serve serves one client.
func (h *Host) serve(c *conn) {
	defer func() { _ = c.Close() }()
	reader := frame.NewReader(c)
	c.write(frame.TypeChallenge, frame.Challenge{Version: frame.Version}.AppendTo(nil))
	_, payload, err := reader.Next(frame.MaxHello)
	if err != nil {
		return
	}
	hello, err := frame.OpenHello(payload, [32]byte{}, h.key.ID())
	if err != nil {
		return
	}
	h.mu.Lock()
	c.id, c.addrs, c.branch = hello.ID, hello.Addrs, h.joined%2
	h.joined++
	h.conns[c] = true
	c.write(frame.TypeWelcome, frame.Welcome{Host: h.key.ID(), Genesis: h.branches[c.branch].Log().Genesis().Raw}.AppendTo(nil))
	h.showPeers()
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
	}()
	for {
		kind, payload, err := reader.Next(frame.MaxToHost)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.handle(c, kind, payload)
		h.mu.Unlock()
	}
}

// handle handles a client's frame. The caller holds mu.
func (h *Host) handle(c *conn, kind frame.Type, payload []byte) {
	switch kind {
	case frame.TypeFollow:
		f, err := frame.DecodeFollow(payload)
		if err == nil {
			c.sent, c.shown = f.Index, false
			h.push()
		}
	case frame.TypeHello:
		if hello, err := frame.OpenHello(payload, [32]byte{}, h.key.ID()); err == nil {
			c.addrs = hello.Addrs
			h.showPeers()
		}
	case frame.TypeSubmit:
		submit, err := frame.DecodeSubmit(payload)
		if err != nil {
			return
		}
		c.write(frame.TypeAck, frame.Ack{Request: submit.Request, Code: h.act(slices.Clone(submit.Action))}.AppendTo(nil))
		h.push()
	}
}

// each calls do for both histories, with the time of each.
func (h *Host) each(do func(i int, b *branch, now core.Now)) {
	clock := time.Now()
	for i, b := range h.branches {
		now := core.Now{Time: clock, Clock: uint64(clock.UnixMilli())}
		if h.options.Attack == Fork && i == 1 && b.State().Progress.Step+1 >= h.options.After {
			now.Clock, h.attacked = now.Clock+1, true // it is committed to the draws, but not to the time
		}
		do(i, b, now)
		records, err := b.AdvanceUnsaved(now, func(core.Update) {}) // push sends the new records
		if err != nil {
			panic(err)
		}
		for _, r := range records {
			b.records = append(b.records, r.Payload)
		}
	}
}

// act applies an action to both histories.
func (h *Host) act(raw []byte) (code coordinator.Code) {
	h.each(func(i int, b *branch, now core.Now) {
		action, err := wire.OpenAction(raw, b.Log().Run())
		switch {
		case err != nil:
		case i == 1 && h.omits(b, action.Action):
			h.attacked = true
		default:
			b.Submit(now, action, core.Origin{}, func(err error) {
				if i == 0 {
					code, _ = errors.AsType[coordinator.Code](err)
				}
			})
		}
	})
	return code
}

// omits reports whether an action is left out of the second history.
func (h *Host) omits(b *branch, a coordinator.Action) bool {
	_, witness := a.(coordinator.WitnessRound)
	return h.options.Attack == OmitAction && witness && !h.attacked && b.State().Progress.Step >= h.options.After
}

// tick ticks both histories.
func (h *Host) tick() {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := uint64(0); ; n++ {
		select {
		case <-h.done:
			return
		case <-ticker.C:
			h.step(n%50 == 0)
		}
	}
}

// step applies due transitions.
func (h *Host) step(ping bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.each(func(_ int, b *branch, now core.Now) { b.Tick(now) })
	if begun := h.branches[0].State().Progress.Step; !h.attacked && begun >= h.options.After {
		h.attack()
	}
	h.push()
	for c := range h.conns {
		if ping {
			c.write(frame.TypePing, nil)
		}
	}
}

// attack performs the one-time attacks.
func (h *Host) attack() {
	switch h.options.Attack {
	case FalseReport:
		h.attacked = true
		for _, b := range h.branches {
			member := b.State().Epoch.Clients[0].ID
			report := wire.SignAction(h.key, b.Log().Run(), 1<<63, coordinator.ReportCheckpoint{Step: b.State().Progress.Step, Digest: [32]byte{66}})
			copy(report[1:], member[:]) // the member's name, without its signature
			b.records = append(b.records, append([]byte{byte(follow.KindAction)}, report...))
			b.Log().Note(b.records[len(b.records)-1])
		}
	case OtherGenesis:
		h.attacked = true
		if err := h.begin(2); err != nil {
			panic(err)
		}
		h.hangUp() // they reconnect to a different run
	}
}

// push sends every client the records that it lacks.
func (h *Host) push() {
	for c := range h.conns {
		b := h.branches[c.branch]
		log := b.Log()
		head := log.Head()
		if c.sent == 0 || c.sent > head.Index || c.shown && c.sent == head.Index {
			continue
		}
		r := frame.Records{First: c.sent}
		for _, record := range b.records[c.sent-1:] {
			r.Raw = frame.AppendRecord(r.Raw, record)
		}
		for _, start := range log.Starts() {
			if start.Index > c.sent && start.Index < head.Index {
				r.Heads = append(r.Heads, start.Sign(h.key, log.Run()))
			}
		}
		r.Heads = append(r.Heads, head.Sign(h.key, log.Run()))
		c.sent, c.shown = head.Index, true
		c.write(frame.TypeRecords, r.AppendTo(nil, nil))
		c.write(frame.TypeWindow, frame.AppendWindow(nil, nil))
	}
}

// showPeers sends the addresses of all clients to all clients.
func (h *Host) showPeers() {
	var peers []backend.Peer
	for c := range h.conns {
		peers = append(peers, backend.Peer{ID: c.id, Addrs: c.addrs})
	}
	slices.SortFunc(peers, func(a, b backend.Peer) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for c := range h.conns {
		c.write(frame.TypePeers, frame.AppendPeers(nil, peers))
	}
}
