// Package hostpage makes the dashboard of the runs that a server hosts.
package hostpage

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/talk"
	"github.com/psyche-go/psyche/face/tui"
	"github.com/psyche-go/psyche/record/event"
)

// Page holds the data of the dashboard. The methods Close and SetParameters accept a nil page.
type Page struct {
	gatherer *gather.Gatherer
	journals bool          // the dashboard gets its data from journals
	talk     *talk.Model   // model for the chat; nil: none
	samples  *samples.File // nil: none

	mu     sync.Mutex
	join   dash.Join
	states map[string]*coordinator.State // the newest of each run
	sizes  map[string]uint64             // number of parameters of a run's model, if the server offers it
}

// New returns the page of a server that keeps journals in stateDir; if stateDir is empty, it keeps none. The page also shows
// reports of members from the event logs that match patterns.
func New(ctx context.Context, stateDir string, patterns []string, logger *slog.Logger) (*Page, error) {
	p := &Page{journals: stateDir != "", states: make(map[string]*coordinator.State), sizes: make(map[string]uint64)}
	p.gatherer = gather.New(ctx, gather.Options{Keep: true, Events: patterns, Logger: logger})
	var folders []string
	if p.journals {
		folders = append(folders, stateDir)
	}
	err := p.gatherer.Watch(folders, func(runID string, f *gather.Found) {
		f.Source, f.State = "hosted here", func() *coordinator.State { return p.state(runID) }
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close closes the dashboard.
func (p *Page) Close() {
	if p != nil {
		p.gatherer.Close()
	}
}

// Listens registers the address at which clients reach the server.
func (p *Page) Listens(address net.Addr, host string, logger *slog.Logger) {
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

// SetInstall sets the command line that installs psyche-client.
func (p *Page) SetInstall(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.join.Install = line
}

// SetProduct sets the model for the chat after a run, and the file with its samples. Both may be nil. Call it before Runs.
func (p *Page) SetProduct(model *talk.Model, texts *samples.File) { p.talk, p.samples = model, texts }

// SetParameters registers the number of parameters of a run's model. It does nothing without a
// dashboard.
func (p *Page) SetParameters(runID string, parameters uint64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes[runID] = parameters
}

// See registers the newest state of a run, which the dashboard then owns.
func (p *Page) See(state *coordinator.State) {
	p.mu.Lock()
	_, known := p.states[state.RunID]
	p.states[state.RunID] = state
	p.mu.Unlock()
	if !known && !p.journals {
		runID := state.RunID
		p.gatherer.Add(runID, gather.Found{Source: "hosted here", State: func() *coordinator.State { return p.state(runID) }})
	}
}

func (p *Page) state(runID string) *coordinator.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[runID]
}

// Runs returns the runs to show.
func (p *Page) Runs() []dash.Run {
	list := p.gatherer.Runs()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		list[i].Join = p.join
		list[i].Join.Parameters = p.sizes[list[i].Key]
		list[i].Talk, list[i].Samples = p.talk, p.samples
	}
	return list
}

// Moving returns the transfers that members of each run report.
func (p *Page) Moving() map[string][]tui.Moving {
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
