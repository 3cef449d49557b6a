package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/eventlog"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// sourceFlags configure how the data of a data.toml is read.
type sourceFlags struct {
	GCSCredentials bool `name:"gcs-credentials" help:"Use your credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, the machine's) to read Google Cloud Storage buckets. By default, no credentials are used."`
}

// dataService is a running data server.
type dataService struct {
	*serve.Server
	source  data.Provider
	end     context.CancelFunc
	serving sync.WaitGroup
}

// begin opens the data and serves it at an address until stop is called. It uses the run, the key and the logger of o, and
// writes an event for each answer.
func (f sourceFlags) begin(ctx context.Context, from config.DataServer, address string, events *event.Log, o serve.Options) (*dataService, error) {
	listener, err := server.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	d := &dataService{end: end}
	d.source, err = data.New(ctx, from.Locations, data.Options{
		SeqLen: int(from.SeqLen), Logger: o.Logger,
		Web: web.Options{Inner: true}, // the server's operator chooses its data
		Bucket: func(ctx context.Context, name string) (objstore.Store, error) {
			return gcs.Open(ctx, name, gcs.Options{Credentials: f.GCSCredentials})
		},
	})
	if err == nil {
		o.Source, o.SeqLen, o.Answered = d.source, int(from.SeqLen), answerEvents(events, o.Logger)
		d.Server, err = serve.New(o)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), d.stop())
	}
	d.serving.Go(func() { d.Run(ctx, listener) })
	return d, nil
}

// answerEvents returns a function that writes the results of requests to an event log.
func answerEvents(events *event.Log, logger *slog.Logger) func(serve.Answer) {
	return func(a serve.Answer) {
		events.Note(logger, event.Served{
			To: a.To.String(), Request: a.Kind, Batch: event.Batch{a.Batch.Start, a.Batch.End}, Bytes: a.Bytes, Seconds: a.Took.Seconds(), Denied: a.Denied,
		})
	}
}

// follow passes each state of the run to the data server and to the event log, until the updates end.
func (d *dataService) follow(first backend.Update, updates <-chan backend.Update, events *event.Log, logger *slog.Logger) {
	states := eventlog.NewRun(events)
	see := func(u backend.Update) {
		d.Update(u.State, u.Run)
		states.See(u.State, logger)
	}
	see(first)
	for update := range updates {
		see(update)
	}
}

// stop ends the server and closes its data.
func (d *dataService) stop() error {
	d.end()
	d.serving.Wait()
	if d.source == nil {
		return nil
	}
	return d.source.Close()
}

// loadDataServer reads a data.toml.
func loadDataServer(file string) (config.DataServer, error) {
	from, err := config.LoadDataServer(file)
	if err != nil {
		return from, configError{err}
	}
	return from, nil
}

// checkSeqLen returns an error unless a data.toml has the sequence length of the run.
func checkSeqLen(file string, from config.DataServer, maxSeqLen uint32) error {
	if from.SeqLen != maxSeqLen {
		return configError{fmt.Errorf("%s: seq_len is %d, but max_seq_len of the run is %d; make them the same", file, from.SeqLen, maxSeqLen)}
	}
	return nil
}

// loadServedData reads the data.toml of a host that serves a run's data itself, and returns the
// address at which the run's clients expect it.
func loadServedData(state string, model config.Model, file string) (config.DataServer, *config.ServerData, error) {
	at := serverLocation(model)
	if at == nil {
		return config.DataServer{}, nil, configError{fmt.Errorf("%s: no client would request the data of --data-config; add a data location { Server = \"HOST:PORT\" } with the address at which clients reach this server", state)}
	}
	from, err := loadDataServer(file)
	if err == nil {
		err = checkSeqLen(file, from, model.MaxSeqLen)
	}
	return from, at, err
}

// oneRun returns the run that a flag applies to, and the file that defines it: the run of the only
// --state, or else the only run in --save-state-dir.
func (c serverRun) oneRun(flag string, runs []config.Run) (file string, run config.Run, err error) {
	if len(runs) == 1 {
		return c.State[0], runs[0], nil
	}
	var saved []string
	if len(runs) == 0 && c.SaveStateDir != "" {
		if saved, err = filepath.Glob(filepath.Join(c.SaveStateDir, "*.journal")); err != nil {
			return "", run, err
		}
	}
	if len(saved) != 1 {
		return "", run, usagef("%s needs exactly one run: in --state, or in --save-state-dir; there are %d and %d", flag, len(runs), len(saved))
	}
	log, _, err := server.Replay(saved[0], nil)
	if err != nil {
		return "", run, fmt.Errorf("find the run for %s: %w", flag, err)
	}
	run = config.Run{RunID: log.State.RunID, Config: log.State.Config}
	run.Model, err = config.DecodeModel(log.State.Model.Definition)
	return saved[0], run, err
}

// serveData starts a data server if --data-config is set. The returned function stops it.
func (c serverRun) serveData(ctx context.Context, runs []config.Run, o *server.Options, events *eventlog.Logs) (func() error, error) {
	if c.DataConfig == "" {
		if c.DataAddr != "" {
			return nil, usagef("--data-addr needs --data-config, which names the data to serve")
		}
		return func() error { return nil }, nil
	}
	file, run, err := c.oneRun("--data-config", runs)
	if err != nil {
		return nil, err
	}
	from, at, err := loadServedData(file, run.Model, c.DataConfig)
	if err != nil {
		return nil, err
	}
	address := c.DataAddr
	if address == "" {
		_, port, err := net.SplitHostPort(at.Addr)
		if err != nil {
			return nil, configError{fmt.Errorf("%s: data location %q: %w", file, at.Addr, err)}
		}
		address = net.JoinHostPort(c.ServerAddr, port)
	}
	if o.Key, err = server.HostKey(c.SaveStateDir, rand.Reader); err != nil {
		return nil, err
	}
	if at.Key != "" && at.Key != o.Key.ID().String() {
		return nil, configError{fmt.Errorf("%s: the data location requires the data server key %s, but this server has %s; correct the data location, or put that key into --save-state-dir", file, at.Key, o.Key.ID())}
	}
	service, err := c.begin(ctx, from, address, events.MainLog(), serve.Options{Key: o.Key, RunID: run.RunID, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("serve data: %w", err)
	}
	var hash [32]byte
	o.OnRun = func(runID string, of [32]byte) {
		if runID == run.RunID {
			hash = of
		}
	}
	show := o.OnState
	o.OnState = func(state *coordinator.State) {
		service.Update(state, hash)
		show(state)
	}
	o.Collectors = append(o.Collectors, service)
	o.Check = service.Check
	return service.stop, nil
}

// serverLocation returns the first data server in a run's configuration, or nil.
func serverLocation(model config.Model) *config.ServerData {
	for _, location := range model.DataLocations {
		if location.Server != nil {
			return location.Server
		}
	}
	return nil
}
