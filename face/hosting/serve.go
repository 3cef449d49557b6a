package hosting

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/invite"
)

// The ports of a hosted run follow each other: of the run, the page, the data server, the host's own client, and
// the model for the page's chat. The chat's port is the last, because a run does not need it.
const (
	pagePort   = 1
	dataPort   = 2
	clientPort = 3
	chatPort   = 4
	allPorts   = 5

	defaultPort = 39405
	lastPort    = 39495
)

// choosePort returns the first port of the run: the requested port, or else the first of enough free ports.
func choosePort(requested uint16) (uint16, error) {
	if requested != 0 {
		return requested, nil
	}
	for port := uint16(defaultPort); port <= lastPort; port += 10 {
		if checkPorts(port, allPorts) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("%w: none of the ports %d to %d is followed by %d free ports; choose a port with --port", errPort, defaultPort, lastPort, allPorts-1)
}

// checkPorts reports the first of n ports that is in use.
func checkPorts(first, n uint16) error {
	for port := int(first); port < int(first)+int(n); port++ {
		if !child.IsFree(port) || port == int(first)+clientPort && !isFreeUDP(port) {
			return fmt.Errorf("%w: another program uses port %d; the run needs the ports %d to %d; stop that program, or set --port before the run begins", errPort, port, first, first+allPorts-1)
		}
	}
	return nil
}

// isFreeUDP reports whether a UDP port is free. The client listens at its port for UDP too.
func isFreeUDP(port int) bool {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(recipe.Loopback, strconv.Itoa(port)))
	return err == nil && conn.Close() == nil
}

// portPatience is the time in which the processes of a killed host end.
const portPatience = 3 * time.Second

// awaitPorts waits a short time until the ports are free. The run continues without a chat if only the chat's port is in
// use, because a run that has begun cannot change its ports.
func (h *host) awaitPorts(ctx context.Context) error {
	n := uint16(allPorts)
	if !h.Chat {
		n = chatPort
	}
	deadline := time.Now().Add(portPatience)
	for {
		err := checkPorts(h.FirstPort, n)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			if checkPorts(h.FirstPort, chatPort) != nil {
				return err
			}
			h.Chat = false
			h.printf("The page will have no chat: another program uses port %d\n", h.FirstPort+chatPort)
			return nil
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Time limits for processes to end. The client has more time, because it reports its model and leaves the run.
const (
	clientGrace = 30 * time.Second
	serverGrace = 10 * time.Second
)

// serve runs the server and a client until ctx ends or the server fails.
func (h *host) serve(ctx context.Context) error {
	if err := h.awaitPorts(ctx); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(h.path("server"), 0o755), os.MkdirAll(h.path("client"), 0o700)); err != nil {
		return err
	}
	h.Serving()
	begun := h.begun() // the server creates the run
	running := h.serverProcess()
	if err := running.Start(); err != nil {
		return err
	}
	defer running.Stop(serverGrace)
	address := h.address(recipe.Loopback, 0)
	if err := running.AwaitPort(ctx, address); err != nil {
		return quiet(ctx, err)
	}
	link, state, err := h.link(ctx, address)
	if err != nil {
		return quiet(ctx, err)
	}
	h.printf("The page: http://%s\n", h.address(recipe.Loopback, pagePort))
	if !over(state) {
		h.invite(link)
	}
	own := link
	own.Host, own.Port = recipe.Loopback, h.FirstPort
	clientCtx, stop := context.WithCancel(ctx)
	defer stop()
	finished := make(chan error, 1)
	go func() { finished <- h.takePart(clientCtx, own, begun) }()
	select {
	case err = <-finished:
		if err == nil && ctx.Err() == nil { // the run is finished; the page stays
			h.afterwards(ctx, own, running)
		}
	case <-ctx.Done():
		h.printf("Stopping: the client leaves the run; %s.\n", h.sameCommand())
		err = <-finished
	case <-running.Ended():
		stop()
		<-finished //nolint:errcheck // the server's end is the reason
	}
	if err == nil && ctx.Err() == nil {
		err = fmt.Errorf("the server ended: %w: %s; its log is %s, and %s", cause(running), running.LogTail(3), running.Log, h.sameCommand())
	}
	return err
}

// afterwards offers the model of a finished run until ctx or the server ends.
func (h *host) afterwards(ctx context.Context, link invite.Link, server *child.Process) {
	ctx, cancel := context.WithCancel(ctx)
	offered := make(chan struct{})
	defer func() { cancel(); <-offered }()
	go func() {
		defer close(offered)
		_, state, err := h.link(ctx, h.address(recipe.Loopback, 0))
		if err == nil && over(state) && state.Model.Checkpoint.FromPeers() {
			h.product(ctx, link, state.Model.Checkpoint.Step)
		}
	}()
	select {
	case <-ctx.Done():
	case <-server.Ended():
	}
}

// cause returns the reason why a process ended.
func cause(p *child.Process) error {
	if err, _ := p.Result(); err != nil {
		return err
	}
	return errors.New("exit code 0")
}

// over reports whether a run is finished.
func over(s *coordinator.State) bool { return s != nil && s.RunState == coordinator.Finished }

// quiet returns nil if the user ended the command.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// address returns a host with the port at an offset from the run's first port.
func (h *host) address(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(h.FirstPort+port)))
}

// local reports whether only this machine can reach the run.
func (h *host) local() bool { return net.ParseIP(h.Host).IsLoopback() }

// serverArguments returns the command line of the server.
func (h *host) serverArguments() []string {
	listen := "0.0.0.0"
	switch {
	case h.local():
		listen = h.Host
	case strings.Contains(h.Host, ":"):
		listen = "::"
	}
	args := []string{
		"server", "run", "--save-state-dir", h.path("server"), "--data-config", h.path("data.toml"),
		"--server-addr", listen, "--server-port", strconv.Itoa(int(h.FirstPort)), "--public-addr", h.address(h.Host, 0),
		"--http-addr", h.address(recipe.Loopback, pagePort), "--member-events", h.path("client", "events.jsonl"), "--log", "console",
		"--member-checkpoints", filepath.Join(exactly(h.path("client", "psyche", "runs")), "*"),
		"--samples", h.path(samplesFile),
	}
	if h.Chat {
		args = append(args, "--chat-addr", h.address(recipe.Loopback, chatPort))
	}
	if !h.begun() {
		args = append(args, "--state", h.path(stateFile))
		if h.Authority != "" {
			args = append(args, "--main-authority", h.Authority)
		}
	}
	if h.MinClient != "" {
		args = append(args, "--min-client-version", h.MinClient)
	}
	if h.InstallURL != "" {
		args = append(args, "--install-url", h.InstallURL)
	}
	switch {
	case h.creates():
		args = append(args, "--model-path", h.path("model"))
	case h.hub() == "":
		args = append(args, "--model-path", h.Model)
	}
	return args
}

// exactly returns the pattern that matches only a path.
func exactly(path string) string {
	quoted := strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]")
	if filepath.Separator != '\\' {
		quoted = strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]", `\`, `\\`)
	}
	return quoted.Replace(path)
}

func (h *host) serverProcess() *child.Process {
	return &child.Process{Name: "the server", Program: h.Server, Args: h.serverArguments(), Env: []string{chatKey + "=" + h.key}, Log: h.path("server", "server.log"), OwnGroup: true}
}

// link returns the invite link of the run, and its state; the state is nil if ctx ends.
func (h *host) link(ctx context.Context, address string) (link invite.Link, state *coordinator.State, err error) {
	hostKey, err := server.HostKey(h.path("server"), rand.Reader)
	if err != nil {
		return link, nil, err
	}
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return link, nil, err
	}
	client, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: h.Name, Key: key, Observe: true, ServerKey: hostKey.ID(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return link, nil, err
	}
	select {
	case update := <-client.Updates():
		state = update.State
	case <-ctx.Done():
	}
	link = invite.Link{Host: h.Host, Port: h.FirstPort, RunID: h.Name, Key: client.Host(), Run: client.Run()}
	return link, state, errors.Join(client.Close(), link.Check())
}

// invite prints how friends can join.
func (h *host) invite(link invite.Link) {
	program := "psyche-client"
	if h.InstallURL != "" {
		program = "~/.local/bin/psyche-client" // a new user's shell does not search the folder yet
		h.printf("\nSend these lines to your friends. The first line installs psyche-client:\n\n    %s\n", release.InstallLine(h.InstallURL))
	} else {
		h.printf("\nSend this line to your friends. They need psyche-client (docs/install.md):\n\n")
	}
	h.printf("    %s join %s\n\n", program, link.ForShell())
	if err := h.ShowQR(link.String()); err != nil {
		h.printf("%v\n", err)
	}
	switch {
	case h.local():
		h.printf("Only this machine reaches %s: for other machines, set --public-addr\n", h.Host)
	case h.PublicAddr == "":
		h.printf("Friends must reach %s. If they reach this machine at another address, set --public-addr\n", h.Host)
		fallthrough
	default:
		h.printf("Open these ports of this machine: TCP %d (run), TCP %d (data), TCP and UDP %d (results)\n", h.FirstPort, h.FirstPort+dataPort, h.FirstPort+clientPort)
	}
	h.printf("Ctrl-C stops; %s. Logs: %s, %s\n\n", h.sameCommand(), h.path("server", "server.log"), h.path("client", "client.log"))
}

// Restarts of the host's client. After errors soon after the start, the pauses double.
const (
	restartPause    = 5 * time.Second
	maxRestartPause = 10 * time.Minute
	stableRuntime   = time.Minute
)

// takePart runs the host's client until the run is finished or ctx ends. It restarts a client that ended
// with an error, because friends may depend on the server. An error soon after the start of a new run ends
// the command instead: then this machine probably cannot train. begun reports whether the run had begun.
func (h *host) takePart(ctx context.Context, link invite.Link, begun bool) error {
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan struct{})
	public := link
	public.Host = h.Host
	seen := &progress{out: h.Out, since: time.Now(), link: public.ForShell()}
	go func() { defer close(followed); seen.follow(follow, h.path("client", "events.jsonl")) }()
	defer func() { stop(); <-followed; seen.end() }()
	for wait := restartPause; ; {
		started := time.Now()
		client := h.clientProcess(link)
		if err := client.Start(); err != nil {
			return err
		}
		select {
		case <-client.Ended():
		case <-ctx.Done():
			client.Stop(clientGrace)
			return nil
		}
		err := client.Failure()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		stable := time.Since(started) >= stableRuntime
		if !stable && !begun {
			return fmt.Errorf("the host's %w; its log is %s, and %s", err, client.Log, h.sameCommand())
		}
		if begun = true; stable {
			wait = restartPause
		}
		h.printf("the client ended, and starts again after %v; the server continues: %v\n", wait, err)
		if pause.For(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, maxRestartPause)
	}
}

// clientEnv is the environment of the client's programs: its key and its checkpoints are in the run's folder.
func (h *host) clientEnv() []string { return []string{"XDG_STATE_HOME=" + h.path("client")} }

// clientProcess describes the host's client. Its key and checkpoints are in the run's folder, so that the
// user can take part with the usual key too.
func (h *host) clientProcess(link invite.Link) *child.Process {
	args := []string{
		"join", link.String(), "--events-dir", h.path("client"), "--member-name", "host", "--logs", "console",
		"--bind-p2p-port", strconv.Itoa(int(h.FirstPort + clientPort)), "--allow-inner-data",
	}
	if h.local() {
		args = append(args, "--bind-p2p-address", h.Host)
	}
	heldOut := h.path("data", tokens.HeldOut)
	if info, err := os.Stat(heldOut); err == nil && info.IsDir() {
		args = append(args, "--held-out", heldOut)
	}
	return &child.Process{
		Name: "client", Program: h.Client, Args: args, Env: h.clientEnv(),
		Log: h.path("client", "client.log"), OwnGroup: true,
	}
}
