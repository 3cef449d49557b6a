package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
)

// TestSharesBySpeed trains with three processes whose speeds are 1:4:16. Their batches must have this order
// once the run knows the offers, and no member may be late or dropped.
func TestSharesBySpeed(t *testing.T) {
	t.Parallel()
	n := newSharesNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 8, steps: 16}, 42)
	n.startServer()
	var clients []*client
	for i, each := range []time.Duration{80 * time.Millisecond, 20 * time.Millisecond, 5 * time.Millisecond} {
		clients = append(clients, n.startThrottled(fmt.Sprintf("client-%d", i+1), each))
	}
	finish(t, clients...)
	for _, r := range readShares(t, n) {
		sizes := r.of(clients)
		t.Log(r.step, sizes)
		if r.step > 2 && (sizes[0] >= sizes[1] || sizes[1] >= sizes[2]) {
			t.Errorf("step %d: batches of %v sequences", r.step, sizes)
		}
		if len(r.unfit) > 0 {
			t.Errorf("step %d: late or gone: %v", r.step, r.unfit)
		}
	}
}

// TestSlowJurorsEjectAFastCheat has a cheat that is four times as fast as most of the six honest members, and gets
// the largest batches. Jurors need several rounds to repeat such a batch. They must eject the cheat and no other
// member.
func TestSlowJurorsEjectAFastCheat(t *testing.T) {
	t.Parallel()
	n := newSharesNetwork(t, rules{clients: 7, minClients: 2, roundsPerEpoch: 400, steps: 400}, 220)
	n.change("verification_percent = 0", "verification_percent = 30")
	n.startServer()
	cheat := n.startThrottled("cheat", 5*time.Millisecond, "-cheat")
	var honest []*client
	for i := range 6 {
		each := 20 * time.Millisecond
		if i == 0 {
			each = 40 * time.Millisecond
		}
		honest = append(honest, n.startThrottled(fmt.Sprintf("client-%d", i+1), each))
	}
	waitFor[event.Ready](honest[0])
	awaitEjections(honest[0], 1, 4*time.Minute)
	largest := uint64(0)
	for _, r := range readShares(t, n) {
		if size := r.sizes[cheat.id]; size > 0 {
			largest = max(largest, size)
			t.Log(r.step, size, r.of(honest), r.unfit)
		}
	}
	var ejected []string
	for _, e := range honest[0].events() {
		if at, ok := e.Body.(event.Ejected); ok {
			ejected = append(ejected, at.Client)
		}
	}
	if !slices.Equal(ejected, []string{cheat.id}) || largest < 60 {
		t.Errorf("ejected: %v, want %v; its largest batch has %d of 220 sequences", ejected, cheat.id, largest)
	}
}

// newSharesNetwork is newNetwork with the dummy model, shares by speed, and rounds of some number of sequences.
func newSharesNetwork(t *testing.T, r rules, batch int) *network {
	t.Helper()
	n := newNetwork(t, r)
	n.divideBySpeed(batch)
	n.change("[model.LLM.checkpoint.Local]", "[model.LLM.checkpoint.Dummy]") // it needs hardly any processor time
	n.change(fmt.Sprintf("path = %q", n.model), `repo_id = ""`)
	return n
}

// divideBySpeed sets shares by speed and the number of sequences of a round.
func (n *network) divideBySpeed(batch int) {
	n.t.Helper()
	n.change("witness_nodes = 0", "witness_nodes = 0\nshares_by_speed = true")
	n.change("global_batch_size_start = 6", fmt.Sprintf("global_batch_size_start = %d", batch))
	n.change("global_batch_size_end = 6", fmt.Sprintf("global_batch_size_end = %d", batch))
}

// startThrottled starts a new client that takes a time for each sequence.
func (n *network) startThrottled(name string, each time.Duration, flags ...string) *client {
	n.t.Helper()
	c := n.newClient(name)
	c.throttle(each)
	c.startAltered("throttled", append(flags, "-each", c.eachPath())...)
	return c
}

func (c *client) eachPath() string { return filepath.Join(c.dir, "each.txt") }

// throttle changes the time for each sequence.
func (c *client) throttle(each time.Duration) {
	writeFile(c.network.t, c.eachPath(), []byte(each.String()))
}

// sharesRound is a round in the journal.
type sharesRound struct {
	step    uint32
	started uint64            // host's time in milliseconds
	sizes   map[string]uint64 // sequences of each member
	lost    []string          // members without an attested result
	unfit   []string          // members that were late or not healthy during the round
}

// of returns the batches of clients.
func (r *sharesRound) of(clients []*client) (sizes []uint64) {
	for _, c := range clients {
		sizes = append(sizes, r.sizes[c.id])
	}
	return sizes
}

// readShares reads the rounds of the journal.
func readShares(t *testing.T, n *network) (rounds []*sharesRound) {
	t.Helper()
	_, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(_ follow.Record, s *coordinator.State) error {
		round := s.CurrentRound()
		if round == nil || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
			return nil
		}
		if len(rounds) == 0 || rounds[len(rounds)-1].step != round.Step {
			next := &sharesRound{step: round.Step, started: s.StateStart, sizes: map[string]uint64{}}
			for _, a := range round.Assignments(s.Config) {
				next.sizes[identity.ID(round.Members[a.Member]).String()] = a.Batch.Len()
			}
			rounds = append(rounds, next)
		}
		at := rounds[len(rounds)-1]
		at.lost = nil
		for _, member := range round.Owners(s.Config) {
			if id := round.Members[member]; round.Score(id) < int(round.WitnessesNeeded) {
				at.lost = append(at.lost, identity.ID(id).String())
			}
		}
		for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
			for _, c := range members {
				at.note(&c)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// note records a member that is late or not healthy.
func (r *sharesRound) note(c *coordinator.Client) {
	text := strings.TrimSpace(fmt.Sprintf("%s %v %v", identity.ID(c.ID).Short(), c.State, c.Lateness))
	if (c.State != coordinator.Healthy || c.Lateness != coordinator.OnTime) && !slices.Contains(r.unfit, text) {
		r.unfit = append(r.unfit, text)
	}
}
