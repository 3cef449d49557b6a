package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

// debugFlags make a client record its observations and computations.
type debugFlags struct {
	Logs     logFormat  `aliases:"log" default:"console" placeholder:"FORMAT" help:"Log format on standard error: console, json or none. tui and tui-and-console draw the progress and the last warnings on a terminal, and otherwise work like console; --write-log writes the full log (${default})."`
	LogLevel slog.Level `default:"info" help:"Minimum log level: debug, info, warn or error."`
	WriteLog string     `type:"path" placeholder:"FILE" help:"Also append the log to this file."`

	MetricsLocalPort uint16 `default:"0" placeholder:"PORT" help:"Port of this machine for training metrics: JSON at /, Prometheus format at /metrics; 0 disables it."`

	WriteGradientsDir string `type:"path" placeholder:"DIR" help:"Folder for the results of this client and its peers, in their wire format."`
	OptimStatsSteps   uint32 `placeholder:"N" help:"Write each tensor's share of the gradient and momentum to the event log every N steps; 0 means never."`
}

// open returns the logger, and a closer for its file. A display replaces the terminal.
func (f debugFlags) open(t terminal, shown *display) (*slog.Logger, io.Closer, error) {
	var all []slog.Handler
	switch {
	case shown != nil:
		all = append(all, shown.handler())
	case f.Logs == "json":
		all = append(all, slog.NewJSONHandler(t.Err, &slog.HandlerOptions{Level: f.LogLevel}))
	case f.Logs == "none":
	default:
		all = append(all, tint.NewTextHandler(t.Err, &tint.Options{Level: f.LogLevel, TimeFormat: "15:04:05.000", NoColor: true}))
	}
	if f.WriteLog == "" {
		return logTo(all), io.NopCloser(nil), nil
	}
	if err := os.MkdirAll(filepath.Dir(f.WriteLog), 0o755); err != nil {
		return nil, nil, fmt.Errorf("--write-log: %w", err)
	}
	file, err := os.OpenFile(f.WriteLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("--write-log: %w", err)
	}
	all = append(all, tint.NewTextHandler(file, &tint.Options{Level: f.LogLevel, TimeFormat: time.RFC3339Nano, NoColor: true}))
	return logTo(all), file, nil
}

// logTo returns the process's logger. At debug level it also logs the lines that libraries
// (zeroconf) write to the standard library's logger, because they would corrupt a display.
func logTo(all []slog.Handler) *slog.Logger {
	handler := slog.NewMultiHandler(all...)
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(handler, slog.LevelDebug).Writer())
	return slog.New(handler)
}

// serveMetrics serves a board on a port of this machine. stop stops it.
func serveMetrics(ctx context.Context, port uint16, board *metrics.Board) (stop func() error, err error) {
	if port == 0 {
		return func() error { return nil }, nil
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("--metrics-local-port: %w", err)
	}
	server := &http.Server{Handler: board.Handler(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until Close
	return func() error {
		err := server.Close()
		serving.Wait()
		return err
	}, nil
}

// maxStats limits the tensors of one event, which has to fit into a line of the log.
const maxStats = 1000

// gradientEvents returns a function that writes statistics of a gradient to the event log.
func gradientEvents(events *event.Log, logger *slog.Logger) func(train.Gradient) {
	return func(g train.Gradient) {
		events.Note(logger, event.Gradient{Step: g.Step, LR: g.LR, Norm: g.Norm})
		for some := range slices.Chunk(g.Tensors, maxStats) {
			stats := event.OptimizerStats{Step: g.Step}
			for _, s := range some {
				stats.Tensors = append(stats.Tensors, event.TensorStats{Name: s.Name, GradientEnergy: s.Gradient, DeltaEnergy: s.Delta})
			}
			events.Note(logger, stats)
		}
	}
}

// maxWaiting limits the bytes of results that wait to be written. A slow disk must neither fill the
// memory nor delay a round.
const maxWaiting = 256 << 20

// resultWriter writes results into the folder of --write-gradients-dir.
type resultWriter struct {
	dir    string
	logger *slog.Logger
	done   chan struct{}

	mu      sync.Mutex
	more    *sync.Cond
	waiting []seenResult
	bytes   int
	closed  bool
}

type seenResult struct {
	name    string
	payload []byte
}

// writeResults creates the folder and starts to write; nil without a folder.
func writeResults(dir string, logger *slog.Logger) (*resultWriter, error) {
	if dir == "" {
		return nil, nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = probeFolder(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("--write-gradients-dir: %w", err)
	}
	w := &resultWriter{dir: dir, logger: logger, done: make(chan struct{})}
	w.more = sync.NewCond(&w.mu)
	go w.run()
	return w, nil
}

// see queues a valid result for writing. It does not wait for the disk.
func (w *resultWriter) see(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) {
	if w == nil {
		return
	}
	name := fmt.Sprintf("step%d-batch%d-%d-%s.distro", step, batch.Start, batch.End, identity.ID(trainer))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.bytes+len(payload) > maxWaiting {
		w.logger.Warn("skipping a result for --write-gradients-dir: the disk is too slow", "result", name)
		return
	}
	w.waiting = append(w.waiting, seenResult{name, payload})
	w.bytes += len(payload)
	w.more.Signal()
}

func (w *resultWriter) run() {
	defer close(w.done)
	for {
		w.mu.Lock()
		for len(w.waiting) == 0 && !w.closed {
			w.more.Wait()
		}
		if len(w.waiting) == 0 {
			w.mu.Unlock()
			return
		}
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.bytes -= len(next.payload)
		w.mu.Unlock()
		if err := os.WriteFile(filepath.Join(w.dir, next.name), next.payload, 0o644); err != nil {
			w.logger.Error("cannot write a result to --write-gradients-dir", "err", err)
		}
	}
}

// close writes pending results.
func (w *resultWriter) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	w.more.Signal()
	w.mu.Unlock()
	<-w.done
}
