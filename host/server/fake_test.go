package server_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// fakeClient does the same as a client, except for training.
type fakeClient struct {
	backend  backendtest.Backend
	id       coordinator.ClientID
	ready    uint32 // epoch + 1 of the newest Ready
	witness  uint32 // newest step with a proof
	reported uint32 // newest step with a report
	joined   uint32 // epoch + 1 of the newest Join
}

// run reacts to updates until the run is finished.
func (f *fakeClient) run(t *testing.T) {
	for u := range f.backend.Updates() {
		s := u.State
		if s.RunState == coordinator.Finished {
			return
		}
		action := f.react(s)
		if action == nil {
			continue
		}
		err := f.backend.Submit(t.Context(), action)
		if errors.Is(err, backend.ErrClosed) {
			return // closed by the test, which has seen enough
		}
		// The run may have moved on in the meantime.
		if err != nil && !slices.ContainsFunc([]error{
			coordinator.ErrWrongState, coordinator.ErrWrongStep, coordinator.ErrWrongEpoch, coordinator.ErrDuplicate,
			coordinator.ErrHalted, backend.ErrDisconnected,
		}, func(expected error) bool { return errors.Is(err, expected) }) {
			t.Error(err)
			return
		}
		if errors.Is(err, backend.ErrDisconnected) {
			*f = fakeClient{backend: f.backend, id: f.id} // forget what was sent, to send it again after the reconnection
		}
	}
}

// react returns the next action of the client in a state, or nil.
func (f *fakeClient) react(s *coordinator.State) coordinator.Action {
	member, isMember := s.Member(f.id)
	healthy := isMember && member.State == coordinator.Healthy
	epoch := s.Progress.Epoch
	if healthy || s.IsPending(f.id) {
		f.joined = 0 // so that it joins again if the host withdraws it
	}
	switch {
	case !healthy && !s.IsPending(f.id):
		if f.joined != epoch+1 {
			f.joined = epoch + 1
			return coordinator.Join{Epoch: epoch}
		}
	case !healthy:
	case s.RunState == coordinator.Warmup && f.ready != epoch+1:
		f.ready = epoch + 1
		return coordinator.Ready{Epoch: epoch}
	case s.RunState == coordinator.RoundTrain && f.witness != s.Progress.Step:
		f.witness = s.Progress.Step
		round := s.CurrentRound()
		if i, ok := round.MemberIndex(f.id); ok && slices.Contains(round.ElectedWitnesses(s.Config), i) {
			return proof(s, round)
		}
	case s.RunState == coordinator.Cooldown && f.reported != s.Progress.Step:
		f.reported = s.Progress.Step
		return coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(s.Progress.Step)}}
	}
	return nil
}

// proof returns a proof that the witness holds every result of the round.
func proof(s *coordinator.State, round *coordinator.Round) coordinator.Action {
	var participants bloom.Filter
	for _, id := range round.Members {
		participants.Add(round.Seed, id[:])
	}
	return coordinator.WitnessRound{Step: round.Step, Participants: participants, Claim: coordinator.Claim{Loss: 2345}}
}
