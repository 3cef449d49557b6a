package client

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestChaos drops messages and answers at random, and kills and restarts clients. Some clients measure the
// held-out loss. All clients that reach the end hold the run's model, and a client that was never killed was
// never desynchronised. PSYCHE_TEST_SEEDS is the number of seeds to try.
func TestChaos(t *testing.T) {
	seeds := 3
	if n, err := strconv.Atoi(os.Getenv("PSYCHE_TEST_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, uint64(seed)) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	const clients = 5
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	config := clienttest.Config(clients)
	config.TotalSteps = 15
	w := newWorld(t, config)
	w.hub.DropGossip = func(identity.ID, identity.ID, []byte) bool { return draw(100) < 30 }
	w.hub.DropLink = func(identity.ID, identity.ID) bool { return draw(100) < 20 }
	measures := func(o *options) {
		o.trainer.HeldOuts, o.trainer.Measures = draw(2), time.Duration(draw(1000))*time.Millisecond
	}
	members := make([]*member, clients)
	for i := range members {
		members[i] = w.launch(i, measures)
	}
	killed := make(map[int]bool)
	for range 3 {
		time.Sleep(time.Duration(draw(12_000)) * time.Millisecond)
		if s := w.host.State(); s.RunState == coordinator.Finished {
			break
		}
		victim := draw(2) // the others stay
		killed[victim] = true
		members[victim].crash()
		time.Sleep(time.Duration(draw(5_000)) * time.Millisecond)
		members[victim] = w.launch(victim, measures)
	}
	var steady []*member
	for i, m := range members {
		if !killed[i] {
			steady = append(steady, m)
			continue
		}
		m.wait()
		want := w.host.State().Model.Checkpoint.Digest
		if done := all[event.Finished](m); m.err == nil && (len(done) != 1 || done[0].Digest != "" && done[0].Digest != hexOf(want)) {
			t.Errorf("client %d finished with %+v", i, done)
		}
	}
	finishEqual(w, steady...)
	for _, m := range steady {
		if lost := all[event.Desynchronised](m); len(lost) != 0 {
			t.Errorf("%s: got %+v; want len(lost) == 0", m.id.Short(), lost)
		}
	}
}
