package liar

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
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// Attack is what the host does.
type Attack int

// The attacks.
const (
	Fork         Attack = iota // every other client is shown rounds that began from other seeds
	FalseReport                // it writes reports of a checkpoint that members did not sign
	OmitAction                 // every other client is shown a history in which one action is missing
	OtherGenesis               // when clients come back it shows another run of the same name
)

// Options of a Host.
type Options struct {
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	Attack  Attack
	After   uint32 // step from which on it lies
}

// Host is a lying host.
type Host struct {
	options  Options
	key      identity.Key
	listener net.Listener
	tls      *tls.Config
	running  sync.WaitGroup
	done     chan struct{}

	mu       sync.Mutex
	branches [2]*branch
	conns    map[*conn]bool
	joined   int
	lied     bool
}

// branch is one history of the run.
type branch struct {
	core    memory.Prompt
	log     *follow.Follower // the core's
	records [][]byte
	omitted bool
}

// conn is a client's.
type conn struct {
	socket net.Conn
	id     identity.ID
	addrs  []string
	branch int
	sent   uint64 // records; 0: it does not follow
	shown  bool   // a head
}

// Listen starts a host on the loopback interface.
func Listen(o Options) (*Host, error) {
	h := &Host{options: o, key: identity.FromSeed([identity.SeedSize]byte{66}), conns: make(map[*conn]bool), done: make(chan struct{})}
	var err error
	if h.tls, err = secure.ServerConfig(h.key); err != nil {
		return nil, err
	}
	for i := range h.branches {
		if h.branches[i], err = h.begin(1); err != nil {
			return nil, err
		}
	}
	if h.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	h.running.Go(h.accept)
	h.running.Go(h.tick)
	return h, nil
}

// begin makes a branch that begins the run, with a salt.
func (h *Host) begin(salt byte) (*branch, error) {
	state, err := h.options.Genesis(coordinator.ClientID(h.key.ID()))
	if err != nil {
		return nil, err
	}
	draws := hashchain.New([32]byte{salt}, 1<<10)
	state.DrawCommitment = draws.Commitment()
	g, err := follow.NewGenesis(h.key, [32]byte{salt}, &state)
	if err != nil {
		return nil, err
	}
	log, err := follow.Begin(g)
	if err != nil {
		return nil, err
	}
	b := &branch{log: log}
	b.core = memory.Prompt{
		Host: core.New(log, h.now(), core.Options{
			Times: core.Times{WithdrawGrace: -1}, Draws: draws,
			Connection: func(identity.ID) (from core.Origin, live bool) { return from, true },
		}),
		Keep: func(r core.Record) { b.records = append(b.records, r.Payload) },
		Show: func(core.Update) {}, // push shows what there is
	}
	return b, nil
}

func (h *Host) now() core.Now {
	now := time.Now()
	return core.Now{Time: now, Clock: uint64(now.UnixMilli())}
}

// nowOf is the time that a history is told.
func (h *Host) nowOf(i int, now core.Now) core.Now {
	if h.options.Attack == Fork && i == 1 && h.branches[1].log.State.Progress.Step+1 >= h.options.After {
		now.Clock, h.lied = now.Clock+1, true // it committed to the draws, but not to the time
	}
	return now
}

// Addr returns where it listens.
func (h *Host) Addr() string { return h.listener.Addr().String() }

// Close ends it.
func (h *Host) Close() {
	close(h.done)
	_ = h.listener.Close()
	h.hangUp()
	h.running.Wait()
}

func (h *Host) hangUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.socket.Close()
	}
}

func (h *Host) accept() {
	for {
		socket, err := h.listener.Accept()
		if err != nil {
			return
		}
		h.running.Go(func() {
			secured := tls.Server(socket, h.tls)
			h.serve(&conn{socket: secured})
			_ = secured.Close()
		})
	}
}

// serve talks to one client.
func (h *Host) serve(c *conn) {
	reader := frame.NewReader(c.socket)
	write := func(kind frame.Type, payload []byte) { _, _ = c.socket.Write(frame.Append(nil, kind, payload)) }
	write(frame.TypeChallenge, frame.Challenge{Version: frame.Version}.AppendTo(nil))
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
	write(frame.TypeWelcome, frame.Welcome{Host: h.key.ID(), Genesis: h.branches[c.branch].log.Genesis().Raw}.AppendTo(nil))
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
		h.handle(c, kind, payload, write)
		h.mu.Unlock()
	}
}

// handle does what a client asks for. The caller holds mu.
func (h *Host) handle(c *conn, kind frame.Type, payload []byte, write func(frame.Type, []byte)) {
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
		write(frame.TypeAck, frame.Ack{Request: submit.Request, Code: h.act(slices.Clone(submit.Action))}.AppendTo(nil))
		h.push()
	}
}

// act applies an action to both histories.
func (h *Host) act(raw []byte) (code coordinator.Code) {
	now := h.now()
	for i, b := range h.branches {
		action, err := wire.OpenAction(raw, b.log.Run())
		if err != nil {
			continue
		}
		if h.omits(i, b, action.Action) {
			b.omitted, h.lied = true, true
			continue
		}
		now := h.nowOf(i, now)
		err = b.core.Submit(now, action, core.Origin{})
		if refused, ok := errors.AsType[coordinator.Code](err); ok && i == 0 {
			code = refused
		}
	}
	return code
}

// omits reports whether an action is left out of the second history.
func (h *Host) omits(i int, b *branch, a coordinator.Action) bool {
	_, witness := a.(coordinator.WitnessRound)
	return h.options.Attack == OmitAction && i == 1 && witness && !b.omitted && b.log.State.Progress.Step >= h.options.After
}

// tick lets both histories go on.
func (h *Host) tick() {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := uint64(0); ; n++ {
		select {
		case <-h.done:
			return
		case <-ticker.C:
		}
		if h.step(n) {
			h.hangUp() // they come back to another run
		}
	}
}

// step does what is due, and reports whether everybody is to be thrown out.
func (h *Host) step(n uint64) (hangUp bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for i, b := range h.branches {
		now := h.nowOf(i, now)
		if err := b.core.Tick(now); err != nil {
			panic(err)
		}
	}
	if begun := h.branches[0].log.State.Progress.Step; !h.lied && begun >= h.options.After {
		hangUp = h.lie()
	}
	h.push()
	if n%50 == 0 {
		for c := range h.conns {
			_, _ = c.socket.Write(frame.Append(nil, frame.TypePing, nil))
		}
	}
	return hangUp
}

// lie does what the attack does once.
func (h *Host) lie() (hangUp bool) {
	switch h.options.Attack {
	case FalseReport:
		h.lied = true
		for _, b := range h.branches {
			member := b.log.State.Epoch.Clients[0].ID
			report := wire.SignAction(h.key, b.log.Run(), 1<<63, coordinator.ReportCheckpoint{Step: b.log.State.Progress.Step, Digest: [32]byte{66}})
			copy(report[1:], member[:]) // the member's name, and not its signature
			b.records = append(b.records, append([]byte{byte(follow.KindAction)}, report...))
			b.log.Note(b.records[len(b.records)-1])
		}
	case OtherGenesis:
		h.lied = true
		for i := range h.branches {
			other, err := h.begin(2)
			if err != nil {
				panic(err)
			}
			h.branches[i] = other
		}
		return true
	}
	return false
}

// push sends every client the records that it does not have.
func (h *Host) push() {
	for c := range h.conns {
		b := h.branches[c.branch]
		head := b.log.Head()
		if c.sent == 0 || c.sent > head.Index || c.shown && c.sent == head.Index {
			continue
		}
		r := frame.Records{First: c.sent}
		for _, record := range b.records[c.sent-1:] {
			r.Raw = frame.AppendRecord(r.Raw, record)
		}
		for _, start := range b.log.Starts() {
			if start.Index > c.sent && start.Index < head.Index {
				r.Heads = append(r.Heads, start.Sign(h.key, b.log.Run()))
			}
		}
		r.Heads = append(r.Heads, head.Sign(h.key, b.log.Run()))
		c.sent, c.shown = head.Index, true
		frames := frame.Append(nil, frame.TypeRecords, r.AppendTo(nil, nil))
		frames = append(frames, frame.Append(nil, frame.TypeWindow, frame.AppendWindow(nil, nil))...)
		_, _ = c.socket.Write(frames)
	}
}

// showPeers tells everybody where everybody is.
func (h *Host) showPeers() {
	var peers []backend.Peer
	for c := range h.conns {
		peers = append(peers, backend.Peer{ID: c.id, Addrs: c.addrs})
	}
	slices.SortFunc(peers, func(a, b backend.Peer) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for c := range h.conns {
		_, _ = c.socket.Write(frame.Append(nil, frame.TypePeers, frame.AppendPeers(nil, peers)))
	}
}
