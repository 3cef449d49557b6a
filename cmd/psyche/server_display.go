package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/face/dash/hostpage"
	"github.com/psyche-go/psyche/face/tui"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
)

// serverDisplay is the terminal display of --tui.
type serverDisplay struct {
	*tui.Server
	address atomic.Pointer[net.TCPAddr] // listening address; nil: not yet listening
	to      console
}

// newDisplay makes the display; nil without --tui or without a terminal.
func (c serverRun) newDisplay(to console) *serverDisplay {
	if !c.Tui || !isTerminal(to.out) || !isTerminal(os.Stdin) {
		return nil
	}
	return &serverDisplay{Server: &tui.Server{}, to: to}
}

// loggerFor returns the process's logger. With a display, messages go to it instead of the
// terminal.
func (c serverRun) loggerFor(shown *serverDisplay, to console) *slog.Logger {
	if shown == nil {
		return c.logger(to.err)
	}
	return slog.New(shown.Handler(c.LogLevel))
}

// watch returns a function that makes the display follow an event log, and then calls others if it is
// not nil.
func (d *serverDisplay) watch(others func(string, *event.Log)) func(string, *event.Log) {
	if d == nil {
		return others
	}
	return func(runID string, log *event.Log) {
		d.Watch(runID, log)
		if others != nil {
			others(runID, log)
		}
	}
}

// start starts drawing.
func (d *serverDisplay) start(ctx context.Context, c serverRun, o *server.Options, page *hostpage.Page) {
	if d == nil {
		return
	}
	ready, registry := o.Ready, o.Registry
	o.Ready = func(address net.Addr) {
		ready(address)
		if at, ok := address.(*net.TCPAddr); ok {
			d.address.Store(at)
		}
		d.SetTitle(address.String())
	}
	options := tui.ServerOptions{Journals: func() map[string]uint64 { return journals(registry) }}
	if page != nil {
		options.Moving = page.Moving
	}
	if c.SaveStateDir != "" { // otherwise no other process can have the host's key
		options.Pause = func(runID string, paused bool) error { return d.pause(ctx, c.SaveStateDir, runID, paused) }
	}
	d.Start(os.Stdin, d.to.out, options)
}

// invite shows the command that joins a run.
func (d *serverDisplay) invite(runID, command string) {
	if d != nil {
		d.Invite(runID, command)
	}
}

// pause signs the action with the host's key, as psyche run set-paused does.
func (d *serverDisplay) pause(ctx context.Context, dir, runID string, paused bool) error {
	at := d.address.Load()
	if at == nil {
		return fmt.Errorf("the server is not listening yet")
	}
	key, err := server.HostKey(dir, rand.Reader)
	if err != nil {
		return err
	}
	ip := at.IP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	command := runSetPaused{Paused: strconv.FormatBool(paused)}
	command.RunID, command.Keypair = runID, filepath.Join(dir, server.HostKeyFile)
	command.ServerAddr, command.ServerKey = net.JoinHostPort(ip.String(), strconv.Itoa(at.Port)), key.ID().String()
	return command.Run(ctx, console{io.Discard, io.Discard})
}

// journals returns the sizes of journals from the metrics.
func journals(from prometheus.Gatherer) map[string]uint64 {
	families, err := from.Gather()
	if err != nil {
		return nil
	}
	sizes := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "psyche_server_run_journal_bytes" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "run" {
					sizes[label.GetValue()] = uint64(m.GetGauge().GetValue())
				}
			}
		}
	}
	return sizes
}

// close restores the terminal and prints the last lines of the log.
func (d *serverDisplay) close() {
	if d == nil {
		return
	}
	d.Close()
	for _, line := range d.Lines() {
		_, _ = fmt.Fprintf(d.to.err, "%s %s %s\n", line.At.Format(time.TimeOnly), line.Level, line.Text)
	}
}
