package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/hostpage"
	"github.com/psyche-go/psyche/host/server"
)

// newPage adds the dashboard to a server's options and returns it. Without --http-addr it returns nil.
func (c serverRun) newPage(ctx context.Context, o *server.Options, logger *slog.Logger) (*hostpage.Page, error) {
	if c.HTTPAddr == "" {
		if len(c.MemberEvents) > 0 {
			return nil, usagef("--member-events needs --http-addr")
		}
		return nil, nil
	}
	if c.SaveStateDir != "" {
		if err := server.MakeStateDir(c.SaveStateDir); err != nil {
			return nil, err
		}
	}
	page, err := hostpage.New(ctx, c.SaveStateDir, c.MemberEvents, logger)
	if err != nil {
		return nil, usagef("--member-events: %w", err)
	}
	if c.InstallURL != "" {
		page.SetInstall(release.InstallLine(c.InstallURL))
	}
	o.Pages = dash.New(page.Runs, pageVerifier(logger))
	ready, onState := o.Ready, o.OnState
	o.Ready = func(address net.Addr) {
		page.Listens(address, c.ServerAddr, logger)
		ready(address)
	}
	o.OnState = func(state *coordinator.State) {
		page.See(state)
		onState(state)
	}
	return page, nil
}
