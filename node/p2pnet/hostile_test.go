package p2pnet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/wire"
)

// saboteur is the network of a client that alternately serves wrong bytes and nothing, and
// announces results of old rounds.
type saboteur struct {
	*p2pnet.Network
	key     identity.Key
	asked   atomic.Uint64
	replays atomic.Uint64

	mu    sync.Mutex
	blobs map[[32]byte][]byte
}

func (s *saboteur) Put(data []byte) ([32]byte, error) {
	hash, err := s.Network.Put(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[hash] = data
	return hash, err
}

func (s *saboteur) Publish(ctx context.Context, message []byte) error {
	_, a, err := wire.OpenAnnouncement(message, clienttest.Run)
	if err != nil {
		return err
	}
	if a.Step > 2+coordinator.StoredRounds {
		a.Step, a.Size = 1, uint32(s.replays.Add(1)) // changed bytes, so that gossip forwards them
		err = s.Network.Publish(ctx, wire.SignAnnouncement(s.key, a))
	}
	return errors.Join(err, s.Network.Publish(ctx, message))
}

// Request drops pushed results, so that other members must fetch them from this client.
func (s *saboteur) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	if protocol == exchange.PushProtocol {
		return nil, errors.New("kept back")
	}
	return s.Network.Request(ctx, to, protocol, request, maxResponse)
}

// serve answers requests for blobs in place of the store. It serves correct bytes until the client
// has replayed old announcements; otherwise the run would drop the client before that.
func (s *saboteur) serve(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
	var request [48]byte
	if _, err := io.ReadFull(stream, request[:]); err != nil {
		return err
	}
	honest := s.replays.Load() == 0
	if !honest && s.asked.Add(1)%2 == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	data, held := s.blobs[[32]byte(request[:32])]
	s.mu.Unlock()
	if !held {
		_, err := stream.Write([]byte{1})
		return err
	}
	if !honest {
		data = bytes.Repeat([]byte("wrong"), len(data))[:len(data)]
	}
	_, err := stream.Write(append(binary.LittleEndian.AppendUint64([]byte{0}, uint64(len(data))), data...))
	return err
}

// faults records the faults that a node found in other members.
type faults struct {
	mu   sync.Mutex
	seen map[identity.ID][]p2p.Fault
}

func (f *faults) add(p p2p.Penalty) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = make(map[identity.ID][]p2p.Fault)
	}
	f.seen[p.Peer] = append(f.seen[p.Peer], p.Fault)
}

// participant is a client of a run over sockets.
type participant struct {
	key     identity.Key
	trainer *clienttest.Trainer
	faults  faults
	err     error
}

// start runs a client until the run is over. If sabotage is set, the client is hostile.
func (p *participant) start(ctx context.Context, t *testing.T, host *memory.Host, name string, sabotage bool) (wait func()) {
	t.Helper()
	p.key = p2ptest.Key(name)
	p.trainer = &clienttest.Trainer{ID: p.key.ID(), Bulk: bulk}
	p2pNode, err := p2p.New(context.Background(), p2p.Options{Key: p.key, Listen: p2ptest.Loopback, OnPenalty: p.faults.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p2pNode.Close() })
	b, err := host.Attach(p.key)
	if err != nil {
		t.Fatal(err)
	}
	honest := p2pnet.New(p2pNode, blob.NewStore(8<<20), run)
	var network env.Network = honest
	if sabotage {
		s := &saboteur{Network: honest, key: p.key, blobs: make(map[[32]byte][]byte)}
		limits := p2p.StreamLimits{PerPeer: 64, Total: 64, Timeout: p2ptest.Wait}
		p2pNode.HandleBulk(blob.Protocol, limits, s.serve)
		network = s
	}
	node, err := client.New(client.Options{
		Key: p.key, RunID: run, Backend: b, Data: clienttest.Data{}, Network: network, Misbehaved: honest.Misbehaved,
		NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, _ env.Definition) (env.Trainer, error) {
			return p.trainer, p.trainer.Load(ctx, s)
		},
		Initial:           initial,
		RepublishInterval: 200 * time.Millisecond, CompletionTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.err = node.Run(ctx)
		_ = b.Close()
	}()
	return func() { <-done }
}

// TestRunWithAHostileMember runs three honest clients, one of them late, and a member that serves
// wrong bytes, stalls and replays, over libp2p. It checks that the honest clients end with the same
// model, and identify the hostile member.
func TestRunWithAHostileMember(t *testing.T) {
	const steps = 12
	host, watch := newHost(t, func(c *coordinator.Config) {
		c.TotalSteps, c.RoundsPerEpoch, c.MaxRoundTrainTime, c.InitMinClients = steps, 9, 10_000, 3
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var tasks sync.WaitGroup
	tasks.Go(func() { host.Run(ctx, 20*time.Millisecond) })
	defer tasks.Wait()
	defer cancel()

	var a, b, late, bad participant
	waits := []func(){a.start(ctx, t, host, "a", false), b.start(ctx, t, host, "b", false)}
	waitBad := bad.start(ctx, t, host, "bad", true)
	joinLate(ctx, t, host, watch, p2ptest.Key("late"), func() { waits = append(waits, late.start(ctx, t, host, "late", false)) })
	for _, wait := range waits {
		wait()
	}
	cancel()
	waitBad()
	var held []p2p.Fault
	for name, p := range map[string]*participant{"a": &a, "b": &b, "late": &late} {
		if p.err != nil || !isTrained(p.trainer) || p.trainer.Weights() != a.trainer.Weights() {
			t.Errorf("%s: %v, model %x", name, p.err, p.trainer.Weights())
		}
		for id, faults := range p.faults.seen {
			slow := func(f p2p.Fault) bool { return f == p2p.FaultStall } // like an honest member on a busy machine
			if id != bad.key.ID() && len(slices.DeleteFunc(slices.Clone(faults), slow)) > 0 {
				t.Errorf("%s holds %v against an honest member", name, faults)
			}
			held = append(held, faults...)
		}
	}
	if got := host.State().Progress.Step; got < steps {
		t.Errorf("the run ended at step %d", got)
	}
	if !slices.Contains(held, p2p.FaultWrongBytes) || slices.Contains(held, p2p.FaultInvalid) {
		t.Errorf("held against it: %v; want the wrong bytes, and no old announcements, which honest members pass on", held)
	}
}
