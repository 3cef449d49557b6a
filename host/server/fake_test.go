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

// fakeClient does everything a client does but training.
type fakeClient struct {
	backend  backendtest.Backend
	id       coordinator.ClientID
	ready    uint32 // epoch + 1 for which it was said
	witness  uint32 // newest step
	reported uint32 // newest step
	joined   uint32 // epoch + 1
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
			return // by the test, which has seen enough
		}
		// Others may have moved the run on meanwhile.
		if err != nil && !slices.ContainsFunc([]error{
			coordinator.ErrWrongState, coordinator.ErrWrongStep, coordinator.ErrWrongEpoch, coordinator.ErrDuplicate,
			coordinator.ErrHalted, backend.ErrDisconnected,
		}, func(expected error) bool { return errors.Is(err, expected) }) {
			t.Error(err)
			return
		}
		if errors.Is(err, backend.ErrDisconnected) {
			*f = fakeClient{backend: f.backend, id: f.id} // say it again when the connection is back
		}
	}
}

// react returns what the client has to say in a state, or nil.
func (f *fakeClient) react(s *coordinator.State) coordinator.Action {
	member, isMember := s.Member(f.id)
	healthy := isMember && member.State == coordinator.Healthy
	epoch := s.Progress.Epoch
	if healthy || s.IsPending(f.id) {
		f.joined = 0 // should the host withdraw it, it joins again
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

// proof says that every result of the round is there.
func proof(s *coordinator.State, round *coordinator.Round) coordinator.Action {
	var participants bloom.Filter
	for _, id := range round.Members {
		participants.Add(round.Seed, id[:])
	}
	return coordinator.WitnessRound{Step: round.Step, Participants: participants, Claim: coordinator.Claim{Loss: 2345}}
}
