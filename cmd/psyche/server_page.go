package main

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/tui"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
)

// serverPage is the dashboard of a server's runs at --http-addr.
type serverPage struct {
	gatherer *gather.Gatherer
	keeps    bool // there are journals, from which the dashboard gets its data

	mu     sync.Mutex
	join   dash.Join
	states map[string]*coordinator.State // the newest of each run
	sizes  map[string]uint64             // number of parameters of a run's model, if the server offers it
}

// newPage adds the dashboard to a server's options, if it has HTTP. The caller must close it, even
// if it is nil.
func (c serverRun) newPage(ctx context.Context, o *server.Options, logger *slog.Logger) (*serverPage, error) {
	if c.HTTPAddr == "" {
		if len(c.MemberEvents) > 0 {
			return nil, usagef("--member-events needs --http-addr")
		}
		return nil, nil
	}
	p := &serverPage{keeps: c.SaveStateDir != "", states: make(map[string]*coordinator.State), sizes: make(map[string]uint64)}
	p.gatherer = gather.New(ctx, gather.Options{Keep: true, Events: c.MemberEvents, Logger: logger})
	o.Pages = dash.New(p.runs, pageVerifier(logger))
	ready, onState := o.Ready, o.OnState
	o.Ready = func(address net.Addr) {
		p.listens(address, c.ServerAddr, logger)
		ready(address)
	}
	o.OnState = func(state *coordinator.State) {
		p.see(state)
		onState(state)
	}
	var folders []string
	if p.keeps {
		if err := server.MakeStateDir(c.SaveStateDir); err != nil {
			return p, err
		}
		folders = append(folders, c.SaveStateDir)
	}
	err := p.gatherer.Watch(folders, func(runID string, f *gather.Found) {
		f.Source, f.State = "hosted here", func() *coordinator.State { return p.state(runID) }
	})
	if err != nil {
		return p, usagef("--member-events: %w", err)
	}
	return p, nil
}

// close closes the dashboard.
func (p *serverPage) close() {
	if p != nil {
		p.gatherer.Close()
	}
}

// listens registers the address at which clients reach the server.
func (p *serverPage) listens(address net.Addr, host string, logger *slog.Logger) {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil {
		logger.Warn("the page cannot show how to join", "address", address, "error", err)
		return
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = dash.HostPlaceholder // replaced by the host name in the browser
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.join.Server = joinHost(host, port)
}

// joinHost is like net.JoinHostPort, for a host that may be a placeholder.
func joinHost(host, port string) string {
	if host == dash.HostPlaceholder {
		return host + ":" + port
	}
	return net.JoinHostPort(host, port)
}

// handsOut registers the number of parameters of a run's model. It does nothing without a
// dashboard.
func (p *serverPage) handsOut(runID string, parameters uint64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes[runID] = parameters
}

// see registers the newest state of a run, which the dashboard then owns.
func (p *serverPage) see(state *coordinator.State) {
	p.mu.Lock()
	_, known := p.states[state.RunID]
	p.states[state.RunID] = state
	p.mu.Unlock()
	if !known && !p.keeps {
		runID := state.RunID
		p.gatherer.Add(runID, gather.Found{Source: "hosted here", State: func() *coordinator.State { return p.state(runID) }})
	}
}

func (p *serverPage) state(runID string) *coordinator.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[runID]
}

// runs returns the runs to show.
func (p *serverPage) runs() []dash.Run {
	list := p.gatherer.Runs()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		list[i].Join = p.join
		list[i].Join.Parameters = p.sizes[list[i].Key]
	}
	return list
}

// moving returns the transfers that members of each run report.
func (p *serverPage) moving() map[string][]tui.Moving {
	all := make(map[string][]tui.Moving)
	for _, run := range p.gatherer.Runs() {
		if run.Reported == nil {
			continue
		}
		for _, m := range run.Reported.Moving() {
			for _, t := range []*event.Transfer{m.Arrives, m.Uploads} {
				if t != nil {
					all[run.Key] = append(all[run.Key], tui.Moving{Member: m.ID, Transfer: *t})
				}
			}
		}
	}
	return all
}
