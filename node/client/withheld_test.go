package client

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// holding answers requests for openings only after hold returns.
type holding struct {
	env.Network
	hold func(ctx context.Context, from identity.ID) error
}

// Handle implements env.Requests.
func (h holding) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol != auditor.OpeningProtocol {
		h.Network.Handle(protocol, maxRequest, handle)
		return
	}
	h.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if err == nil {
			err = h.hold(ctx, from)
		}
		return answer, err
	})
}

// deciding may answer a request for a part itself, or pass it, possibly changed by decide, to the
// honest handler.
type deciding struct {
	env.Network
	decide func(step uint32, request []byte) (answer []byte, honest bool)
}

// Handle implements env.Requests.
func (d deciding) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol != auditor.OpeningProtocol {
		d.Network.Handle(protocol, maxRequest, handle)
		return
	}
	d.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, honest := d.decide(binary.LittleEndian.Uint32(request[32:]), request)
		switch {
		case honest:
			return handle(ctx, from, request)
		case answer == nil:
			return nil, errRefusesToOpen
		}
		return answer, nil
	})
}

// trickles makes a member that serves one part of each opening at once, and one more part every 45
// seconds.
func trickles(o *options) {
	var mu sync.Mutex
	first := make(map[uint32]time.Time)
	o.Network = deciding{o.Network, func(step uint32, request []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first[step].IsZero() {
			first[step] = time.Now()
		}
		served := 1 + int(time.Since(first[step])/(45*time.Second))
		wanted := binary.LittleEndian.Uint64(request[36:]) & (1<<min(served, 31) - 1)
		binary.LittleEndian.PutUint64(request[36:], wanted)
		return binary.LittleEndian.AppendUint32(nil, 10_000), wanted != 0
	}}
}

// opensOnTrial makes a member that opens only results that are on trial.
func opensOnTrial(state func() *coordinator.State) func(o *options) {
	return func(o *options) {
		id := coordinator.ClientID(o.Key.ID())
		o.Network = deciding{o.Network, func(step uint32, _ []byte) ([]byte, bool) {
			return nil, state().Trial(id, step) != nil
		}}
	}
}

// TestCheatsThatHideResultsAreEjected checks that a member that sends false results is ejected,
// however it hides them from auditors and jurors.
func TestCheatsThatHideResultsAreEjected(t *testing.T) {
	confidant := clienttest.Key(2).ID()
	var state func() *coordinator.State
	hang := func(o *options) {
		o.Network = holding{o.Network, func(ctx context.Context, _ identity.ID) error {
			<-ctx.Done()
			return ctx.Err()
		}}
	}
	for name, hide := range map[string]func(o *options){
		"opens nothing": func(o *options) {
			opens(o, func(identity.ID, []byte) ([]byte, error) { return nil, errRefusesToOpen })
		},
		"sends one byte per second": hang,
		"never answers, with large parts": func(o *options) {
			o.audited.PartBytes = 133_000
			hang(o)
		},
		"sends a part in 45 seconds": trickles,
		"opens on trial, and cheats a little": func(o *options) {
			o.audited.Cheat = func(_ uint32, _ data.Batch, g []float32) []float32 { return scaled(g, 1.004) }
			opensOnTrial(func() *coordinator.State { return state() })(o)
		},
		"sends wrong bytes": func(o *options) {
			opens(o, func(_ identity.ID, bytes []byte) ([]byte, error) {
				bytes[len(bytes)-1] ^= 1
				return bytes, nil
			})
		},
		"is always busy": func(o *options) {
			opens(o, func(identity.ID, []byte) ([]byte, error) { return []byte{100, 0, 0, 0}, nil })
		},
		"opens to one member": func(o *options) {
			opens(o, func(from identity.ID, bytes []byte) ([]byte, error) {
				if from != confidant {
					return nil, errRefusesToOpen
				}
				return bytes, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, auditedConfig(7, 500))
				state = func() *coordinator.State { s := w.host.State(); return &s }
				var honest []*member
				for i := range 6 {
					honest = append(honest, w.launch(i, func(o *options) {
						audited(nil)(o)
						o.trainer.Duration = time.Second
					}))
				}
				cheat := w.launch(6, func(o *options) {
					turnsSign(o)
					o.trainer.Duration = time.Second
					hide(o)
				})
				w.until("the cheat is ejected", func(s *coordinator.State) bool {
					return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
				})
				s := w.host.State()
				if e := s.Authority.Ejections; len(e) != 1 || identity.ID(e[0].Client) != cheat.id {
					t.Fatalf("ejected: %v, want %s; audits %v", e, cheat.id.Short(), found(honest))
				}
				t.Logf("ejected in step %d", s.Progress.Step)
				for _, m := range append(honest, cheat) {
					m.cancel()
				}
			})
		})
	}
}

// TestWithholdingParts checks that a member that always withholds some parts of its openings is
// ejected, although every auditor has most of each opening.
func TestWithholdingParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(7, 500))
		launch := func(i int, change func(o *options)) *member {
			return w.launch(i, func(o *options) {
				audited(nil)(o)
				o.trainer.Duration = time.Second
				change(o)
			})
		}
		for i := range 6 {
			launch(i, func(*options) {})
		}
		cheat := launch(6, func(o *options) {
			var mu sync.Mutex
			o.Network = &asking{o.Network, func(request []byte) {
				mu.Lock()
				defer mu.Unlock()
				for i := 36; i < 40; i++ { // the first 16 parts of 32
					request[i] &= [4]byte{0, 0, 0xff, 0xff}[i-36]
				}
			}}
		})
		w.until("the cheat is ejected", func(s *coordinator.State) bool {
			return len(s.Authority.Ejections) > 0 || s.RunState == coordinator.Finished
		})
		s := w.host.State()
		if e := s.Authority.Ejections; len(e) != 1 || identity.ID(e[0].Client) != cheat.id {
			t.Fatalf("ejected: %v, want %s", e, cheat.id.Short())
		}
		t.Logf("ejected in step %d", s.Progress.Step)
	})
}

// asking changes the requests for openings that a member answers.
type asking struct {
	env.Network
	change func(request []byte)
}

// Handle implements env.Requests.
func (a *asking) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol != auditor.OpeningProtocol {
		a.Network.Handle(protocol, maxRequest, handle)
		return
	}
	a.Network.Handle(protocol, maxRequest, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		a.change(request)
		return handle(ctx, from, request)
	})
}
