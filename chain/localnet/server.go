package localnet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Options are how time passes. Zeros stand for the values of the public chains.
type Options struct {
	Slot time.Duration // 400 ms
	Seed uint64        // of what faults leave to chance
}

// Server lets a chain's time pass and tells subscribers what happens.
type Server struct {
	ledger  *Ledger
	options Options

	mu         sync.Mutex // while notifications are made, in the order of what happened
	endpoints  []*Endpoint
	subscribed uint64 // how many subscriptions there were
}

// NewServer serves a chain that nobody else changes.
func NewServer(l *Ledger, o Options) *Server {
	if o.Slot == 0 {
		o.Slot = 400 * time.Millisecond
	}
	return &Server{ledger: l, options: o}
}

// Run lets slots pass until the context ends, or until what happens cannot be kept. The chain's clock
// goes on from where it is, as fast as that of the machine.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.options.Slot)
	defer ticker.Stop()
	began := time.Now()
	first, _ := s.ledger.At(Processed, 0).Time()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			s.Advance(time.Unix(first, 0).Add(now.Sub(began)))
			if err := s.ledger.Err(); err != nil {
				return err
			}
		}
	}
}

// Advance ends the slot, for tests that let time pass themselves.
func (s *Server) Advance(now time.Time) {
	s.change(func() { s.ledger.Advance(now) })
}

// Skip lets n slots pass at once: blockhashes expire.
func (s *Server) Skip(n int) {
	s.change(func() { s.ledger.Skip(n, s.options.Slot) })
}

// Rollback takes back the newest slots, as Ledger.Rollback does. Their transactions land again in
// the new slot if they are to; some may fail now.
func (s *Server) Rollback(n int, again bool) error {
	var err error
	s.change(func() {
		var taken [][]byte
		taken, err = s.ledger.Rollback(n)
		for _, raw := range taken {
			if again {
				_, _ = s.ledger.Submit(raw) // refused ones are gone, as on any fork
			}
		}
	})
	return err
}

// change does something to the chain and tells subscribers.
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

// Close drops the WebSockets of all endpoints, which take no connection any more.
func (s *Server) Close() {
	s.mu.Lock()
	endpoints := slices.Clone(s.endpoints)
	s.mu.Unlock()
	for _, e := range endpoints {
		e.SetFaults(Faults{Dead: true})
	}
}
