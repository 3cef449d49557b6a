package core

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// see passes a state of the run.
func (s *script) see(d *datadriven.TestData) {
	first := s.state == nil
	state := &coordinator.State{}
	for phase := coordinator.Uninitialized; phase <= coordinator.Paused; phase++ {
		if phase.String() == d.CmdArgs[0].Key {
			state.RunState = phase
		}
	}
	state.Progress.Epoch, state.Progress.Step = numberOf(d, "epoch"), max(1, numberOf(d, "step"))
	state.Model.Definition = []byte(strings.Join(valuesOf(d, "definition"), ""))
	state.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointLocal}
	if step := numberOf(d, "model"); step > 0 {
		state.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: step, Digest: digestOf(step)}
	}
	if d.HasArg("uploaded") {
		state.Uploads = append(state.Uploads, coordinator.Upload{Digest: state.Model.Checkpoint.Digest})
	}
	state.Epoch.StartStep, state.OriginStep = max(1, numberOf(d, "start")), 1
	state.Config.TotalSteps, state.Config.WarmupTime, state.Closed = max(9, numberOf(d, "total")), 60_000, d.HasArg("closed")
	if step := numberOf(d, "taken"); step > 0 {
		state.Epoch.Commit = coordinator.Recorded{Step: step, Digest: digestOf(step)}
	}
	if step := numberOf(d, "quorum"); step > 0 {
		state.Epoch.Rounds = append(state.Epoch.Rounds, coordinator.Round{Step: step, WitnessesNeeded: 2, Witnesses: make([]coordinator.Witness, 2)})
	}
	state.Config.CooldownTime, state.StateStart = 60_000, 1000*uint64(numberOf(d, "at"))
	state.Epoch.StartTime = 1000 * uint64(numberOf(d, "since"))
	state.Config.RoundsPerEpoch = numberOf(d, "rounds")
	state.Config.InitMinClients = uint16(numberOf(d, "min"))
	claims, reported := valuesOf(d, "claims"), valuesOf(d, "reported")
	entries := func(list string, status coordinator.ClientState) (clients []coordinator.Client) {
		for _, name := range valuesOf(d, list) {
			c := coordinator.Client{ID: idOf(name), State: status, HoldsModel: slices.Contains(claims, name)}
			if c.ID == me {
				c.Commitment = s.commit
				c.Offer, c.Level, c.Offered = uint8(numberOf(d, "offer")), uint8(numberOf(d, "level")), d.HasArg("offered")
			}
			if slices.Contains(reported, name) {
				c.Report = coordinator.Recorded{Step: state.Progress.Step - 1, Digest: digestOf(state.Progress.Step - 1)}
			}
			if slices.Contains(valuesOf(d, "ejected"), name) {
				c.State = coordinator.Ejected
			}
			if slices.Contains(valuesOf(d, "dropped"), name) {
				c.State = coordinator.Dropped
			}
			if slices.Contains(valuesOf(d, "foreign"), name) {
				c.Commitment = [32]byte{1}
			}
			clients = append(clients, c)
		}
		return clients
	}
	state.Epoch.Clients = entries("members", coordinator.Healthy)
	state.Epoch.Exited = entries("left", coordinator.Withdrawn)
	state.Pending = entries("waits", coordinator.Healthy)
	if d.HasArg("missed") {
		state.Epoch.Rounds = append(state.Epoch.Rounds, coordinator.Round{
			Step: state.Progress.Step - 1, Members: clientsOf(d, "members"), BatchSize: uint32(len(state.Epoch.Clients)),
			WitnessesElected: 1, WitnessesNeeded: 1, Witnesses: []coordinator.Witness{{}},
		})
	}
	if state.Config.SharesBySpeed = d.HasArg("shares"); d.HasArg("shares") && state.RunState == coordinator.RoundTrain {
		round := coordinator.Round{Step: state.Progress.Step, Members: clientsOf(d, "members")}
		for i := range round.Members {
			round.Levels[i] = uint8(numberOf(d, "level"))
		}
		state.Epoch.Rounds = append(state.Epoch.Rounds, round)
	}
	for _, name := range valuesOf(d, "ready") {
		state.Epoch.Ready = append(state.Epoch.Ready, idOf(name))
	}
	s.pass(Seen{state})
	if first {
		s.pass(Began{[32]byte{1}})
	}
}

// trainingOf returns the training of a command.
func (s *script) trainingOf(t *testing.T, d *datadriven.TestData) Underway {
	t.Helper()
	took, err := time.ParseDuration(valuesOf(d, "took")[0])
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	u := Underway{Step: s.state.Progress.Step, Tokens: int(numberOf(d, "tokens")), Begun: 1, Took: took}
	if d.HasArg("begun") {
		u.Complete, u.Begun = float64(numberOf(d, "complete"))/100, float64(numberOf(d, "begun"))/100
	}
	return u
}

func batchOf(number uint32) assign.BatchID {
	return assign.BatchID{Start: uint64(number), End: uint64(number) + 1}
}

func nameOf(id coordinator.ClientID) string { return strings.TrimRight(string(id[:]), "\x00") }

func clientsOf(d *datadriven.TestData, key string) (ids []coordinator.ClientID) {
	for _, name := range valuesOf(d, key) {
		ids = append(ids, idOf(name))
	}
	return ids
}

func idOf(name string) (id coordinator.ClientID) {
	copy(id[:], name)
	return id
}

func digestOf(step uint32) [32]byte { return [32]byte{byte(step)} }

func valuesOf(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func numberOf(d *datadriven.TestData, key string) uint32 {
	values := valuesOf(d, key)
	if len(values) != 1 {
		return 0
	}
	n, _ := strconv.ParseUint(values[0], 10, 32)
	return uint32(n)
}
