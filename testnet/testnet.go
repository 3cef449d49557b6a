package testnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server"
)

// Options of a local network. Zero values mean the defaults that are named.
type Options struct {
	ConfigPath   string        // folder that holds state.toml
	NumClients   int           // client processes
	RunDir       string        // parent of the run's own folder
	RunID        string        // default: the configuration's, or the folder's name
	ServerBinary string        // path of psyche
	ClientBinary string        // path of psyche-client
	ServerPort   int           // 0: a free one
	Threads      int           // of each client; 0: an equal share of the cores
	MicroBatch   int           // sequences that a client trains at once
	HeldOut      string        // token file to evaluate on; default: heldout beside the data
	Faults       Faults        // whom to kill, and when
	Timeout      time.Duration // of the whole run, more than zero
	Display      Display       // of the progress; closed when training ends
}

// Display shows progress as it comes.
type Display interface {
	Update(Progress)
	Close()
}

// shutdownGrace is how long a process may take to end after being asked to.
const shutdownGrace = 10 * time.Second

// network is a running testnet.
type network struct {
	options  Options
	run      config.Run
	dir      string // of this run
	address  string // of the server
	server   *process
	clients  []*process
	ids      []identity.ID
	progress *tracker
}

// Run starts the network, waits until the run is finished and returns its summary, which
// it has also written into the run's folder as summary.json, with the loss curve beside it.
// When ctx ends, the processes are asked to end and what is known so far is kept.
func Run(ctx context.Context, options Options) (Summary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("the run took longer than %s", options.Timeout))
	defer cancel()
	started := time.Now()
	n, err := prepare(options)
	if err != nil {
		return Summary{}, err
	}
	first, err := n.evaluate(ctx, n.run.Model.Checkpoint.Local.Path)
	if err != nil {
		return Summary{}, err
	}
	runErr := n.train(ctx)
	n.options.Display.Close()
	if runErr != nil {
		return Summary{}, fmt.Errorf("%w (logs are in %s)", runErr, n.dir)
	}
	return n.summarise(ctx, first, time.Since(started))
}

// prepare checks everything a run needs before anything is started, and makes its folder.
func prepare(options Options) (*network, error) {
	run, err := config.LoadState(filepath.Join(options.ConfigPath, "state.toml"))
	if err != nil {
		return nil, err
	}
	switch {
	case options.RunID != "":
		run.RunID = options.RunID
	case run.RunID == "":
		run.RunID = filepath.Base(filepath.Clean(options.ConfigPath))
	}
	if err := check(options, run); err != nil {
		return nil, err
	}
	if options.Threads == 0 {
		options.Threads = max(1, runtime.NumCPU()/options.NumClients)
	}
	if options.HeldOut == "" {
		options.HeldOut = heldOutBeside(run)
	}
	if options.ServerPort == 0 {
		if options.ServerPort, err = freePort(); err != nil {
			return nil, err
		}
	}
	dir, err := makeRunDir(options.RunDir, run.RunID)
	if err != nil {
		return nil, err
	}
	n := &network{
		options: options,
		run:     run,
		dir:     dir,
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(options.ServerPort)),
	}
	if err := n.makeProcesses(); err != nil {
		return nil, err
	}
	n.progress = newTracker(n.ids, run)
	return n, nil
}

// makeRunDir makes <parent>/<run id>-<time>, a folder that was not there before.
func makeRunDir(parent, runID string) (string, error) {
	dir := filepath.Join(parent, runID+"-"+time.Now().Format("20060102-150405"))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make run folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make run folder: %w", err)
	}
	return dir, nil
}

// freePort asks the system for a TCP port that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

// makeProcesses lays out the run's folder and describes every process, with a fresh key
// for each client.
func (n *network) makeProcesses() error {
	serverDir := filepath.Join(n.dir, "server")
	if err := os.Mkdir(serverDir, 0o755); err != nil {
		return fmt.Errorf("make run folder: %w", err)
	}
	serverKey, err := newKeyFile(filepath.Join(serverDir, server.HostKeyFile))
	if err != nil {
		return err
	}
	n.server = &process{
		name:    "server",
		logPath: filepath.Join(serverDir, "server.log"),
		binary:  n.options.ServerBinary,
		args: []string{
			"server", "run",
			"--state", filepath.Join(n.options.ConfigPath, "state.toml"),
			"--run-id", n.run.RunID,
			"--server-addr", "127.0.0.1",
			"--server-port", strconv.Itoa(n.options.ServerPort),
			"--save-state-dir", serverDir,
			"--log", "console",
		},
	}
	for i := range n.options.NumClients {
		dir := n.clientDir(i)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make run folder: %w", err)
		}
		key, err := newKeyFile(filepath.Join(dir, "identity.json"))
		if err != nil {
			return err
		}
		n.ids = append(n.ids, key.ID())
		n.clients = append(n.clients, &process{
			name:    fmt.Sprintf("client-%d", i+1),
			logPath: filepath.Join(dir, "client.log"),
			binary:  n.options.ClientBinary,
			args: []string{
				"train",
				"--run-id", n.run.RunID,
				"--server-addr", n.address,
				"--server-key", serverKey.ID().String(),
				"--identity-secret-key-path", filepath.Join(dir, "identity.json"),
				"--events-dir", dir,
				"--allow-local-paths",
				"--checkpoint-dir", filepath.Join(dir, "checkpoints"),
				"--threads", strconv.Itoa(n.options.Threads),
				"--micro-batch-size", strconv.Itoa(n.options.MicroBatch),
				"--bind-p2p-address", "127.0.0.1",
				"--log", "console",
			},
		})
	}
	return nil
}

func (n *network) clientDir(i int) string {
	return filepath.Join(n.dir, fmt.Sprintf("client-%d", i+1))
}

// train runs the processes until every client has seen the run finish.
func (n *network) train(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := n.server.start(); err != nil {
		return err
	}
	defer n.server.stop(shutdownGrace)
	if err := waitForPort(ctx, n.address, n.server); err != nil {
		return err
	}
	for _, client := range n.clients {
		if err := client.start(); err != nil {
			return err
		}
		defer client.stop(shutdownGrace)
	}
	// They end before anything is stopped: none may start a process that nobody stops.
	var supervisors sync.WaitGroup
	defer supervisors.Wait()
	defer cancel(nil)
	finished := make(chan error, len(n.clients))
	for i := range n.clients {
		supervisors.Go(func() { finished <- n.superviseClient(ctx, i) })
	}
	serverFailed := make(chan error, 1)
	supervisors.Go(func() { serverFailed <- n.superviseServer(ctx) })
	followers := n.follow(ctx, cancel)
	defer followers.Wait()
	defer cancel(nil)

	for range n.clients {
		select {
		case err := <-finished:
			if err != nil {
				return err
			}
		case err := <-serverFailed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("testnet: %w", context.Cause(ctx))
		}
	}
	return nil
}

// superviseClient waits until client i ends by itself, which it does when the run is
// finished. A life that the faults ended is followed by another.
func (n *network) superviseClient(ctx context.Context, i int) error {
	client := n.clients[i]
	for {
		select {
		case <-client.exited():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err, killed := client.result()
		switch {
		case err == nil:
			return nil
		case !killed:
			return fmt.Errorf("%s ended: %w: %s", client.name, err, client.logTail(3))
		}
		if err := sleep(ctx, n.options.Faults.RestartDelay); err != nil {
			return err
		}
		if err := client.start(); err != nil {
			return err
		}
		n.progress.restarted(n.ids[i])
	}
}

// superviseServer returns an error when the server ends other than by the faults.
func (n *network) superviseServer(ctx context.Context) error {
	for {
		select {
		case <-n.server.exited():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err, killed := n.server.result()
		if !killed {
			if err == nil {
				err = errors.New("nobody asked it to")
			}
			return fmt.Errorf("server ended: %w: %s", err, n.server.logTail(3))
		}
		if err := sleep(ctx, n.options.Faults.RestartDelay); err != nil {
			return err
		}
		if err := n.server.start(); err != nil {
			return err
		}
	}
}

// waitForPort returns when the server listens, or with its last words when it ends.
func waitForPort(ctx context.Context, address string, host *process) error {
	dialer := net.Dialer{Timeout: time.Second}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-host.exited():
			return fmt.Errorf("server ended before it listened on %s: %s", address, host.logTail(3))
		case <-ctx.Done():
			return fmt.Errorf("wait for server: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
