package testnet

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/child"
)

// panes is a tmux session that shows the log of every process of a network.
type panes struct{ session string }

// openPanes starts the session, with the server's log on the left and the clients' logs on the
// right.
func openPanes(ctx context.Context, session string, all []*child.Process) (*panes, error) {
	if _, err := exec.LookPath("tmux"); err != nil {
		return nil, fmt.Errorf("--panes: %w; install tmux, or omit --panes and read the logs", err)
	}
	p := &panes{session: strings.Map(func(r rune) rune { // they have a meaning in tmux names
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, session)}
	newest := "" // pane
	for i, shown := range all {
		show := []string{"tail", "-n", "+1", "-F", shown.Log}
		args := []string{"split-window", "-d", "-t", newest}
		if i == 0 {
			args = []string{"new-session", "-d", "-s", p.session, "-x", "200", "-y", strconv.Itoa(max(50, 6*len(all)))}
		}
		layout := "main-vertical"
		if len(all) > 6 {
			layout = "tiled"
		}
		var err error
		newest, err = p.tmux(ctx, append(append(args, "-P", "-F", "#{pane_id}"), show...)...)
		if err == nil {
			_, err = p.tmux(ctx, "select-pane", "-t", newest, "-T", shown.Name)
		}
		if err == nil { // otherwise there is no space for the next pane
			_, err = p.tmux(ctx, "select-layout", "-t", p.session, layout)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--panes: %w", err), p.close())
		}
	}
	_, err := p.tmux(ctx, "set-option", "-w", "-t", p.session, "pane-border-status", "top", ";",
		"set-option", "-w", "-t", p.session, "pane-border-format", " #{pane_title} ")
	return p, err
}

// tmux runs a tmux command and returns its output.
func (p *panes) tmux(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "tmux", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, text)
	}
	return text, nil
}

// close ends the session.
func (p *panes) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := p.tmux(ctx, "has-session", "-t", p.session); err != nil {
		return nil // the user has closed it
	}
	_, err := p.tmux(ctx, "kill-session", "-t", p.session)
	return err
}
