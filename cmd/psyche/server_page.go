package main

import (
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/base/secret"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/hostpage"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/talk"
	"github.com/psyche-go/psyche/host/server"
)

// newPage adds the dashboard to a server's options and returns it. Without --http-addr it returns nil.
func (c serverRun) newPage(ctx context.Context, o *server.Options, logger *slog.Logger) (*hostpage.Page, error) {
	if c.HTTPAddr == "" {
		for name, set := range map[string]bool{"--member-events": len(c.MemberEvents) > 0, "--chat-addr": c.ChatAddr != "", "--samples": c.Samples != ""} {
			if set {
				return nil, usagef("%s needs --http-addr", name)
			}
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
	if err := c.setProduct(page); err != nil {
		page.Close()
		return nil, err
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

// apiKeyVariable is the environment variable with the API key of --chat-addr.
const apiKeyVariable = "PSYCHE_API_KEY"

// setProduct gives the page the model for its chat, and the file with samples.
func (c serverRun) setProduct(page *hostpage.Page) error {
	var model *talk.Model
	var texts *samples.File
	if c.ChatAddr != "" {
		var err error
		if model, err = talk.New(c.ChatAddr, secret.Trim(os.Getenv(apiKeyVariable))); err != nil {
			return usagef("--chat-addr: %w", err)
		}
	}
	if c.Samples != "" {
		texts = samples.Watch(c.Samples)
	}
	page.SetProduct(model, texts)
	return nil
}
