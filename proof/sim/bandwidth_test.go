package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// newLinked returns a world with running clients and links of equal rates.
func newLinked(t *testing.T, clients int, line links.Line) *world {
	t.Helper()
	w := newWorld(Options{Seed: 1, Clients: clients, Rounds: 40, Faults: scenario.NoFaults, Links: true})
	t.Cleanup(w.workers.Close)
	for i := range w.plan.Links.Access {
		w.plan.Links.Access[i] = links.Access{Up: line, Down: line}
	}
	w.net = links.New(w, w.plan.Links.Access)
	w.begin()
	w.runUntil(6 * second)
	for _, m := range w.machines {
		m.latency = 0
	}
	return w
}

// runUntil simulates all events before a time.
func (w *world) runUntil(until int64) {
	for w.events.Len() > 0 && w.violation == nil {
		at, call := w.events.Take()
		if at > until {
			w.events.Put(at, call)
			break
		}
		w.now = at
		call()
	}
	w.now = until
}

// inTurns is a handler that serves one request at a time. All other clients must repeat their
// requests.
type inTurns struct {
	active context.Context // context of the current request; nil: there was none
	served []identity.ID
}

func (s *inTurns) answer(ctx context.Context, from identity.ID, _ []byte) ([]byte, error) {
	if s.active != nil && s.active.Err() == nil {
		return []byte("later"), nil
	}
	s.active, s.served = ctx, append(s.served, from)
	return make([]byte, 1_000_000-framing), nil
}

// TestHandlersServeInTurns has three clients that request a megabyte from a fourth client, over one
// megabyte per second. The context of the handler must last until the answer has arrived, or until
// the client gave up.
func TestHandlersServeInTurns(t *testing.T) {
	for _, givesUp := range []bool{false, true} {
		w := newLinked(t, 4, links.Line{Rate: 1_000_000})
		begun := w.now
		server := w.machines[0].process
		turns := &inTurns{}
		server.Handle("/test/1", 100, turns.answer)
		got := make([]int64, 4)
		for i := 1; i <= 3; i++ {
			p := w.machines[i].process
			w.workers.Run(func() {
				limit := time.Minute
				if givesUp && i == 1 {
					limit = time.Second / 2
				}
				ctx, cancel := p.WithTimeout(p.root, limit)
				defer cancel()
				response, err := []byte(nil), error(nil)
				for err == nil && len(response) < 100 {
					if response, err = p.Request(ctx, server.machine.ID, "/test/1", make([]byte, 36), 1<<20); err == nil && len(response) < 100 {
						err = p.wait(ctx, w.now+second/50)
					}
				}
				if gaveUp := errors.Is(err, context.DeadlineExceeded); gaveUp != (limit < time.Minute) {
					t.Errorf("client %d: %v", i, err)
				}
				got[i] = w.now - begun
			})
		}
		w.runUntil(w.now + 20*second)
		want := []float64{0, 1, 2, 3}
		if givesUp {
			want = []float64{0, 0.5, 1.5, 2.5}
		}
		slices.Sort(got)
		for i := 1; i <= 3; i++ {
			if seconds := float64(got[i]) / float64(second); seconds < want[i]-0.05 || seconds > want[i]+0.7 {
				t.Errorf("gives up: %t: answer %d arrived after %.2f s, want %.2f s", givesUp, i, seconds, want[i])
			}
		}
		if len(turns.served) != 3 || turns.active.Err() == nil {
			t.Errorf("served %v; the last context: %v", turns.served, turns.active.Err())
		}
	}
}

// TestFetchResumes has a client that gives up a blob and requests it again: the received bytes must
// not be sent twice.
func TestFetchResumes(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newLinked(t, 4, links.Line{Rate: 1_000_000})
		w.rules.restarts = restarts
		holder, p := w.machines[0].process, w.machines[1].process
		hash, _ := holder.Put(make([]byte, 2_000_000))
		var took int64
		w.workers.Run(func() {
			ctx, cancel := p.WithTimeout(p.root, 1500*time.Millisecond)
			_, err := p.Fetch(ctx, hash, 2_000_000, []identity.ID{holder.machine.ID})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v; want error context.DeadlineExceeded", err)
			}
			again := w.now
			ctx, cancel = p.WithTimeout(p.root, time.Minute)
			defer cancel()
			if _, err = p.Fetch(ctx, hash, 2_000_000, []identity.ID{holder.machine.ID}); err != nil {
				t.Error(err)
			}
			took = w.now - again
		})
		w.runUntil(w.now + 20*second)
		if resumed := took > second/4 && took < second; resumed == restarts {
			t.Errorf("restarts: %t: the second fetch took %.2f s", restarts, float64(took)/float64(second))
		}
	}
}

// TestLinksChangeNothingElse checks that a seed always gives the same links, and that runs with and
// without links differ.
func TestLinksChangeNothingElse(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 3, Clients: 8, Rounds: 3, Faults: scenario.NoFaults}
	without := Run(o).Hash
	o.Links = true
	first, second := Run(o), Run(o)
	if first.Hash != second.Hash || first.Hash == without {
		t.Errorf("hashes %x and %x with links, %x without", first.Hash, second.Hash, without)
	}
	if first.Violation != nil {
		t.Error(first.Violation)
	}
}
