package testnet

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// Faults configures which processes are killed, and when. A killed process is restarted.
type Faults struct {
	KillAtStep       uint32        // kill one client in this round; 0: never
	KillServerAtStep uint32        // kill the server in this round; 0: never
	RandomKillNum    int           // clients to kill at every interval; 0: none
	RandomInterval   time.Duration // between random kills
	AllowedToKill    []int         // numbers of clients that may be killed, from 1; empty: all
	Seed             uint64        // for the choice of victims
	RestartDelay     time.Duration // between a kill and the restart
}

func (f Faults) check(clients int) error {
	for _, number := range f.AllowedToKill {
		if number < 1 || number > clients {
			return flagError("--allowed-to-kill names client %d, want 1 to %d", number, clients)
		}
	}
	if f.RandomKillNum > 0 && f.RandomInterval <= 0 {
		return flagError("--random-kill-num needs a --random-kill-interval above zero")
	}
	return nil
}

// victims chooses count of the clients that may be killed, as indices from 0.
func (f Faults) victims(clients, count int, random *rand.Rand) []int {
	candidates := make([]int, 0, clients)
	for i := range clients {
		if len(f.AllowedToKill) == 0 || slices.Contains(f.AllowedToKill, i+1) {
			candidates = append(candidates, i)
		}
	}
	random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	return candidates[:min(count, len(candidates))]
}

// blow is a set of processes to kill now.
type blow struct {
	step           uint32
	client, server bool
}

// faultScript contains the scripted kills. Its method due returns each blow once, to the first caller
// that reaches its round.
type faultScript struct {
	mu     sync.Mutex
	faults Faults
}

func newFaultScript(faults Faults) *faultScript { return &faultScript{faults: faults} }

// due returns the blow for this state of the run.
func (s *faultScript) due(state event.State) blow {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := blow{step: state.Step}
	if state.RunState != coordinator.RoundTrain.String() {
		return next
	}
	if at := s.faults.KillAtStep; at > 0 && state.Step >= at {
		next.client, s.faults.KillAtStep = true, 0
	}
	if at := s.faults.KillServerAtStep; at > 0 && state.Step >= at {
		next.server, s.faults.KillServerAtStep = true, 0
	}
	return next
}

// newRandom returns the random source for the choice of victims.
func newRandom(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
