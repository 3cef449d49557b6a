package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
)

const (
	maxListedRuns = 8   // run ids in a refusal
	maxClosedRuns = 256 // closed runs in addition to the MaxRuns open ones; each keeps its last state in memory
)

// openRuns starts or resumes the given runs, then resumes all other saved runs.
func (s *server) openRuns() error {
	for _, genesis := range s.options.Runs {
		state, err := genesis(coordinator.ClientID(s.key.ID()))
		if err != nil {
			return fmt.Errorf("initial state: %w", err)
		}
		if s.runs[state.RunID] != nil {
			return fmt.Errorf("run %s is specified twice", state.RunID)
		}
		d, err := s.commit(&state)
		if err != nil {
			return err
		}
		first, err := s.sign(state)
		if err != nil {
			return err
		}
		if err := s.open(state.RunID, &first, d); err != nil {
			return err
		}
	}
	saved, err := savedRuns(s.options.SaveStateDir)
	if err != nil {
		return err
	}
	for _, id := range saved {
		if s.runs[id] != nil {
			continue
		}
		if err := s.open(id, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// commit returns the draws of a run that the server starts by itself, and stores their commitment
// in the run's first state. For a saved run, it stores the original commitment and returns nil.
func (s *server) commit(state *coordinator.State) (*draws, error) {
	if s.options.SaveStateDir != "" {
		first, err := readGenesis(JournalPath(s.options.SaveStateDir, state.RunID))
		if saved, decodeErr := coordinator.Decode(first.State); err == nil && decodeErr == nil {
			state.DrawCommitment = saved.DrawCommitment
			return nil, nil
		}
	}
	d, err := newDraws(s.options.Random, drawsOf(state.Config))
	if err == nil {
		state.DrawCommitment = d.chain.Commitment()
		err = core.Suffice(d.chain, state, state.Config)
	}
	return d, err
}

// sign signs the genesis of a run that this server starts by itself.
func (s *server) sign(state coordinator.State) (follow.Genesis, error) {
	var salt [32]byte
	if _, err := io.ReadFull(s.options.Random, salt[:]); err != nil {
		return follow.Genesis{}, fmt.Errorf("draw a salt: %w", err)
	}
	return follow.NewGenesis(s.key, salt, &state)
}

// open starts or resumes one run; see openStore.
func (s *server) open(runID string, first *follow.Genesis, d *draws) error {
	stored, err := openStore(s.options.SaveStateDir, runID, first, d, s.logger)
	if err != nil {
		return err
	}
	if host := identity.ID(stored.log.State.Host); host != s.key.ID() {
		return errors.Join(stored.close(), fmt.Errorf("host %s began run %s, but the key in %s is %s; restore the host's key",
			host, runID, s.options.SaveStateDir, s.key.ID()))
	}
	h, err := newHost(s, stored)
	if err != nil {
		return errors.Join(stored.close(), err)
	}
	s.runs[runID] = h
	return nil
}

// find returns the host of a run, or nil.
func (s *server) find(runID string) *host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[runID]
}

// hosts returns all runs in the order of their ids.
func (s *server) hosts() []*host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.runs), func(a, b *host) int { return strings.Compare(a.runID, b.runID) })
}

// summaries returns the progress of each run.
func (s *server) summaries() []frame.RunSummary {
	var all []frame.RunSummary
	for _, h := range s.hosts() {
		newest := h.newest.Load()
		if newest == nil { // the run is starting
			continue
		}
		all = append(all, frame.RunSummary{
			RunID: h.runID, Run: h.run, Closed: newest.closed, State: newest.phase.RunState,
			Epoch: newest.phase.Epoch, Step: newest.phase.Step, Participants: uint16(newest.participants), Name: newest.name,
		})
	}
	return all
}

func (s *server) runIDs() []string {
	var ids []string
	for _, h := range s.hosts() {
		ids = append(ids, h.runID)
	}
	return ids
}

// notHosted returns the refusal of a client that asks for a run that this server does not have.
func (s *server) notHosted(runID string) error {
	ids := s.runIDs()
	var listed []string
	for _, id := range ids[:min(len(ids), maxListedRuns)] {
		listed = append(listed, fmt.Sprintf("%q", id))
	}
	switch {
	case len(ids) == 0:
		return refuse(frame.RefusedWrongRun, "run %q is not hosted here, this server hosts no run yet", runID)
	case len(ids) == 1:
		return refuse(frame.RefusedWrongRun, "run %q is not hosted here, this server hosts run %s", runID, listed[0])
	case len(ids) > maxListedRuns:
		listed = append(listed, fmt.Sprintf("and %d more", len(ids)-maxListedRuns))
	}
	return refuse(frame.RefusedWrongRun, "run %q is not hosted here, this server hosts runs %s", runID, strings.Join(listed, ", "))
}

// mayCreate returns a refusal if the client may not start this run.
func (s *server) mayCreate(creator identity.ID, runID string) error {
	if !s.options.Create.allows(creator, s.key.ID()) {
		return refuse(frame.RefusedCreation, "the key %s may not begin runs here", creator)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasRoom(runID)
}

// hasPlace returns a refusal if the server has no room for the run. The caller holds mu.
func (s *server) hasRoom(runID string) error {
	closed := 0
	for _, h := range s.runs {
		if h.newest.Load().closed {
			closed++
		}
	}
	switch open := len(s.runs) - closed; {
	case s.runs[runID] != nil:
		return refuse(frame.RefusedCreation, "run %q already exists", runID)
	case open >= s.options.MaxRuns:
		return refuse(frame.RefusedCreation, "the server has %d open runs, which is its limit; close a run that is over", open)
	case closed >= maxClosedRuns:
		return refuse(frame.RefusedCreation, "the server keeps %d closed runs, which is its limit; its operator must move journals of closed runs away and restart it", closed)
	}
	return nil
}

// create starts the run that a client signed, and returns once it is on the disk.
func (s *server) create(g follow.Genesis, runID string, d *draws) error {
	state, err := g.First()
	if err == nil && identity.ID(state.Authority.Main) != g.Signer {
		err = fmt.Errorf("the genesis is signed by %s, but names another main authority, %s", g.Signer, identity.ID(state.Authority.Main))
	}
	switch {
	case err != nil:
		return refuse(frame.RefusedCreation, "%v", err)
	case state.RunID != runID:
		return refuse(frame.RefusedCreation, "the state is for run %q, but the hello was for run %q", state.RunID, runID)
	case identity.ID(state.Host) != s.key.ID():
		return refuse(frame.RefusedCreation, "the state names the host %s, but this server is %s", identity.ID(state.Host), s.key.ID())
	case state.DrawCommitment != d.chain.Commitment():
		return refuse(frame.RefusedCreation, "the state does not commit to the draws that this server offered")
	}
	if err := core.Suffice(d.chain, &state, state.Config); err != nil {
		return refuse(frame.RefusedCreation, "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working == nil {
		return refuse(frame.RefusedShutdown, "the server is shutting down")
	}
	if err := s.hasRoom(runID); err != nil {
		return err
	}
	if s.options.SaveStateDir != "" {
		if _, err := os.Lstat(JournalPath(s.options.SaveStateDir, runID)); err == nil {
			return refuse(frame.RefusedCreation, "run %q already exists", runID)
		}
	}
	if err := s.open(runID, &g, d); err != nil {
		s.logger.Error("cannot begin a run", "run", runID, "error", err)
		return refuse(frame.RefusedCreation, "the server cannot store the run; see the server's log for the reason")
	}
	s.logger.Info("a client began a run", "run", runID, "creator", g.Signer)
	s.start(s.runs[runID])
	return nil
}
