package localnet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Options configure the passage of time. Zero values mean the values of the public chains.
type Options struct {
	Slot time.Duration // 400 ms
	Seed uint64        // of random faults
}

// Server advances a chain's time and notifies subscribers of changes.
type Server struct {
	ledger  *Ledger
	options Options

	mu         sync.Mutex // held during changes and their notifications, to keep their order
	endpoints  []*Endpoint
	subscribed uint64 // number of subscriptions so far
}

// NewServer serves a chain. Only the Server may modify the chain.
func NewServer(l *Ledger, o Options) *Server {
	o.Slot = cmp.Or(o.Slot, 400*time.Millisecond)
	return &Server{ledger: l, options: o}
}

// Run advances slots until the context ends, or until changes cannot be saved. The chain's clock
// continues from its current time, at the rate of the machine's clock.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.options.Slot)
	defer ticker.Stop()
	began := time.Now()
	first, _ := s.ledger.At(Processed, 0).time()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			s.Advance(time.Unix(first, 0).Add(now.Sub(began)))
			if err := s.ledger.err(); err != nil {
				return err
			}
		}
	}
}

// Advance ends the slot, for tests that control the time.
func (s *Server) Advance(now time.Time) {
	s.change(func() { s.ledger.Advance(now) })
}

// Skip advances n slots at once, so that blockhashes expire.
func (s *Server) Skip(n int) {
	s.change(func() { s.ledger.skip(n, s.options.Slot) })
}

// Rollback removes the newest slots, as Ledger.Rollback does. If again is set, it submits their
// transactions to the new slot, where some may fail.
func (s *Server) Rollback(n int, again bool) error {
	var err error
	s.change(func() {
		var taken [][]byte
		taken, err = s.ledger.rollback(n)
		for _, raw := range taken {
			if again {
				_, _ = s.ledger.submit(raw) // rejected transactions are lost, as on any fork
			}
		}
	})
	return err
}

// change modifies the chain with do and notifies subscribers.
func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	for _, e := range s.endpoints {
		e.publish()
	}
}

// Endpoint adds a node of the chain: an http.Handler for JSON-RPC and WebSockets.
func (s *Server) Endpoint() *Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Endpoint{server: s, sockets: map[*socket]bool{}, random: rand.New(rand.NewPCG(s.options.Seed, uint64(len(s.endpoints))))}
	s.endpoints = append(s.endpoints, e)
	return e
}

// Close closes the WebSockets of all endpoints, which then accept no more connections.
func (s *Server) Close() {
	s.mu.Lock()
	endpoints := slices.Clone(s.endpoints)
	s.mu.Unlock()
	for _, e := range endpoints {
		e.SetFaults(Faults{Dead: true})
	}
}
