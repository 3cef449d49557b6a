package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/face/tui"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/config"
)

// display is the terminal display of --logs tui.
type display struct {
	*tui.Client
	network atomic.Pointer[p2pnet.Network] // nil before the network is open
	errors  io.Writer
}

// newDisplay makes the display that --logs selects; nil if it selects none, or if there is no terminal.
func newDisplay(logs logFormat, t terminal) *display {
	if !logs.drawn() || !isTerminal(os.Stdin) || !isTerminal(t.Out) {
		return nil
	}
	return &display{Client: &tui.Client{}, errors: t.Err}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// handler returns a handler that shows warnings in the display.
func (d *display) handler() slog.Handler { return d.Handler(slog.LevelWarn) }

// start starts drawing.
func (d *display) start(t terminal, c *trainCommand, id identity.ID, o *observed) {
	if d == nil {
		return
	}
	o.events.Watch(d.See)
	options := tui.ClientOptions{RunID: c.RunID, ID: id.String(), Metrics: o.board.Values, Peers: d.peers}
	if c.link != "" {
		options.Command = "psyche-client join " + c.link
	}
	d.Start(os.Stdin, t.Out, options)
}

// naming returns a check of the run's definition that also shows the run's display name.
func (d *display) naming(check func(context.Context, env.Definition) error) func(context.Context, env.Definition) error {
	if d == nil {
		return check
	}
	return func(ctx context.Context, definition env.Definition) error {
		name, _ := config.NameOf(definition.Definition)
		d.SetName(name)
		return check(ctx, definition)
	}
}

// use makes the display show the peers of a network.
func (d *display) use(network *p2pnet.Network) {
	if d != nil {
		d.network.Store(network)
	}
}

func (d *display) peers() []tui.Peer {
	network := d.network.Load()
	if network == nil {
		return nil
	}
	var peers []tui.Peer
	for _, one := range network.Traffic() {
		peers = append(peers, tui.Peer{ID: one.ID.String(), Sent: one.Sent, Received: one.Received, Relayed: one.Relayed})
	}
	return peers
}

// close restores the terminal and prints the last warnings.
func (d *display) close() {
	if d == nil {
		return
	}
	d.Close()
	for _, line := range d.Warnings() {
		_, _ = fmt.Fprintf(d.errors, "%s %s %s\n", line.At.Format(time.TimeOnly), line.Level, line.Text)
	}
}
