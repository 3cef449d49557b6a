package main

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/privatenet"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/invite"
)

// invitations logs the invite links of a server's runs, and shows them in the display.
type invitations struct {
	logger *slog.Logger
	shown  *serverDisplay // may be nil

	mu    sync.Mutex
	place invite.Link            // host and port
	guess bool                   // the address was not set by the user
	ready bool                   // clients can connect
	runs  map[string]invite.Link // runs whose links were not logged yet, without address
}

// invite makes a server log the links of its runs when it listens, and show them in the display if it is not nil.
func (c serverRun) invite(o *server.Options, logger *slog.Logger, shown *serverDisplay) error {
	v := &invitations{logger: logger, shown: shown, runs: make(map[string]invite.Link)}
	if c.PublicAddr != "" {
		host, port, err := invite.ParseAddress(c.PublicAddr)
		if err != nil {
			return usagef("--public-addr: %w", err)
		}
		if _, _, err := net.SplitHostPort(c.PublicAddr); err != nil {
			port = 0 // the port on which the server listens
		}
		v.place.Host, v.place.Port = host, port
	}
	onRun, onState, ready := o.OnRun, o.OnState, o.Ready
	o.OnRun = func(runID string, run [32]byte) {
		if onRun != nil {
			onRun(runID, run)
		}
		v.hosts(runID, run)
	}
	o.OnState = func(state *coordinator.State) {
		v.see(state)
		onState(state)
	}
	o.Ready = func(address net.Addr) {
		ready(address)
		v.listens(address)
	}
	return nil
}

// hosts registers a run.
func (i *invitations) hosts(runID string, run [32]byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.runs[runID] = invite.Link{RunID: runID, Run: run}
}

// see registers the key of a run's host, and logs the link if the server listens. It logs no link
// for a finished run.
func (i *invitations) see(state *coordinator.State) {
	i.mu.Lock()
	defer i.mu.Unlock()
	link, waits := i.runs[state.RunID]
	switch {
	case !waits:
		return
	case i.shown != nil:
		name, _ := config.NameOf(state.Model.Definition)
		i.shown.SetName(state.RunID, name)
	}
	switch {
	case state.RunState == coordinator.Finished || state.Closed:
		delete(i.runs, state.RunID)
		return
	}
	link.Key = identity.ID(state.Host)
	i.runs[state.RunID] = link
	i.tell()
}

// listens registers the address of the server.
func (i *invitations) listens(address net.Addr) {
	at, ok := address.(*net.TCPAddr)
	if !ok {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ready = true
	i.place.Port = cmp.Or(i.place.Port, uint16(at.Port))
	if i.place.Host == "" {
		i.place.Host = at.IP.String()
		if at.IP.IsUnspecified() {
			i.place.Host, i.guess = ownAddress(net.InterfaceAddrs), true
		}
	}
	i.tell()
}

// tell logs the links of all runs whose data is complete.
func (i *invitations) tell() {
	if !i.ready {
		return
	}
	for id, link := range i.runs {
		if link.Key == (identity.ID{}) {
			continue
		}
		delete(i.runs, id)
		link.Host, link.Port = i.place.Host, i.place.Port
		if err := link.Check(); err != nil {
			i.logger.Warn("the run has no invite link", "run", id, "error", err)
			continue
		}
		command := "psyche-client join " + link.ForShell()
		i.shown.invite(id, command)
		i.logger.Info("others join with: " + command)
		if i.guess {
			i.logger.Info("if clients reach this machine at a different address, set it with --public-addr", "address", link.Host)
		}
	}
}

// ownAddress returns the address of this machine that is most likely reachable: a public one, or
// else one of a private network; IPv4 first.
func ownAddress(list func() ([]net.Addr, error)) string {
	best, rank := "127.0.0.1", 0
	all, _ := list() // on an error, only loopback is certain
	for _, one := range all {
		prefix, err := netip.ParsePrefix(one.String())
		if err != nil {
			continue
		}
		address, r := prefix.Addr().Unmap(), 1
		if !address.IsGlobalUnicast() {
			continue
		}
		if privatenet.Public(address) {
			r += 2
		}
		if address.Is4() {
			r++
		}
		if r > rank {
			best, rank = address.String(), r
		}
	}
	return best
}
