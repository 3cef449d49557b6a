package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server"
)

type serverRun struct {
	State                string        `required:"" placeholder:"FILE" help:"The state.toml of the run."`
	RunID                string        `name:"run-id" placeholder:"ID" help:"Name of the run, in place of run_id in the file."`
	ServerAddr           string        `default:"0.0.0.0" placeholder:"HOST" help:"Address to listen on (${default})."`
	ServerPort           uint16        `default:"0" placeholder:"PORT" help:"Port to listen on; 0: a free one, which is logged (${default})."`
	DataConfig           string        `placeholder:"FILE" help:"A data.toml. It is checked; serving data is not part of this version."`
	SaveStateDir         string        `placeholder:"DIR" help:"Folder for the host's key and the journal of the run. With it a run survives the end of the server."`
	WithdrawOnDisconnect bool          `default:"true" negatable:"" help:"Withdraw clients whose connection ended."`
	WithdrawGrace        time.Duration `default:"5s" help:"How long a connection may be gone before its client is withdrawn (${default})."`
	EventsDir            string        `placeholder:"DIR" help:"Folder for the typed event log, events.jsonl."`
	logFlags             `embed:""`
}

// Run hosts the run until a signal comes.
func (c serverRun) Run(ctx context.Context, to console) error {
	run, err := loadRun(c.State, c.RunID)
	if err != nil {
		return err
	}
	if run.RunID == "" {
		return configError{fmt.Errorf("%s has no run_id: add it, or name the run with --run-id", c.State)}
	}
	if c.WithdrawGrace <= 0 {
		return fmt.Errorf("--withdraw-grace is %v, want more than 0; --no-withdraw-on-disconnect never withdraws", c.WithdrawGrace)
	}
	if c.DataConfig != "" {
		if _, err := config.LoadDataServer(c.DataConfig); err != nil {
			return configError{err}
		}
		return errors.New("--data-config: serving data is not part of this version; give clients the data with a Local location")
	}
	logger := c.logger(to.err)
	for _, warning := range run.Warnings {
		logger.Warn(warning, "file", c.State)
	}
	log, err := openEvents(c.EventsDir)
	if err != nil {
		return err
	}
	err = server.Run(ctx, c.options(run, logger, log))
	if closeErr := log.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("host run %s: %w", run.RunID, err)
	}
	logger.Info("stopped", "run", run.RunID)
	return nil
}

func (c serverRun) options(run config.Run, logger *slog.Logger, log *event.Log) server.Options {
	grace := c.WithdrawGrace
	if !c.WithdrawOnDisconnect {
		grace = -1
	}
	events := &stateEvents{log: log, logger: logger}
	return server.Options{
		Listen:        net.JoinHostPort(c.ServerAddr, strconv.Itoa(int(c.ServerPort))),
		Genesis:       run.CoordinatorState,
		SaveStateDir:  c.SaveStateDir,
		WithdrawGrace: grace,
		Logger:        logger,
		OnState:       events.add,
	}
}

// openEvents opens the event log of a folder, or none if there is no folder.
func openEvents(dir string) (*event.Log, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make events folder: %w", err)
	}
	return event.Open(filepath.Join(dir, "events.jsonl"))
}

// stateEvents writes the states of a run to an event log. The server calls add from one
// goroutine.
type stateEvents struct {
	log     *event.Log
	logger  *slog.Logger
	started bool
	last    event.State
}

func (e *stateEvents) add(state *coordinator.State) {
	if !e.started {
		e.started = true
		e.append(event.Started{Role: "server", ID: identity.ID(state.Host).String(), RunID: state.RunID, PID: os.Getpid()})
	}
	if next := stateEvent(state); !reflect.DeepEqual(next, e.last) {
		e.last = next
		e.append(next)
	}
}

func (e *stateEvents) append(body event.Body) {
	if err := e.log.Append(body); err != nil {
		e.logger.Error("write event", "err", err)
	}
}

// stateEvent returns a state as the event log has it.
func stateEvent(state *coordinator.State) event.State {
	out := event.State{
		RunState: state.RunState.String(),
		Epoch:    state.Progress.Epoch,
		Step:     state.Progress.Step,
		Members:  []string{},
		Pending:  len(state.Pending),
		Elected:  []string{},
		Ready:    len(state.Epoch.Ready),
	}
	for _, client := range state.Epoch.Clients {
		if client.State == coordinator.Healthy {
			out.Members = append(out.Members, identity.ID(client.ID).String())
		}
	}
	if round := state.CurrentRound(); round != nil {
		for _, member := range round.ElectedWitnesses(state.Config) {
			out.Elected = append(out.Elected, identity.ID(round.Members[member]).String())
		}
		out.Witnesses, out.Quorum = len(round.Witnesses), int(round.WitnessesNeeded)
	}
	if checkpoint := state.Model.Checkpoint; checkpoint.Digest != ([32]byte{}) {
		out.Digest = fmt.Sprintf("%x", checkpoint.Digest)
	}
	return out
}
