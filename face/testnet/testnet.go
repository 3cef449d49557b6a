package testnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
)

// Options configure a local network. Zero values mean the given defaults.
type Options struct {
	ConfigPath   string        // folder that contains state.toml
	Resume       string        // folder of a run to resume, instead of ConfigPath, NumClients, RunDir and RunID
	NumClients   int           // client processes
	RunDir       string        // parent of the run's own folder
	RunID        string        // default: the configuration's id, or the folder's name
	ServerBinary string        // path of psyche
	ClientBinary string        // path of psyche-client
	Version      string        // version of these programs, for the summary
	ServerPort   int           // 0: 20000, or a free port if 20000 is in use
	Threads      int           // of each client; 0: an equal share of the cores
	MicroBatch   int           // sequences that a client trains at once
	HeldOut      string        // token file for evaluation; default: heldout next to the data, if it exists
	Faults       Faults        // processes to kill
	Timeout      time.Duration // of the whole run, more than zero
	Display      Display       // of the progress; closed when training ends
	Begin        func()        // called after the configuration was read, before a process starts; may be nil
	Chain        Chain         // for a run on a chain

	AcceptLoss bool            // permits a resumed run to continue from an older model than its newest
	Hurry      context.Context // when it ends, an interrupted run ends without closing its epoch; may be nil

	Cheats      []Cheat // clients that cheat
	CheatBinary string  // path of psyche-cheat; required for Cheats

	Extras
}

// Display shows progress. It is updated at every change of phase, and regularly in between.
type Display interface {
	Update(Progress)
	Close()
}

// shutdownGrace is the time limit for a process to end after it was asked to.
const shutdownGrace = 10 * time.Second

// network is a running testnet.
type network struct {
	options     Options
	run         config.Run
	dir         string         // of this run
	claimed     *os.File       // dir, locked for this process
	address     string         // of the server
	server      *child.Process // or the chain
	data        *child.Process // data server of a run on a chain; nil: none
	dataAddress string
	archive     string // of a run on a chain
	setUp       uint64 // lamports that the authority of a run on a chain paid
	clients     []*child.Process
	ids         []identity.ID
	progress    *tracker
	reserved    net.Listener  // holds address until the server listens there; nil: not reserved
	hostFlags   []string      // flags for clients to find the run
	before      time.Duration // duration of the run before it was resumed
	resumed     *resumedRun   // nil: a new run
}

// Run starts the network, waits until the run is finished and returns its summary. It also writes
// the summary into the run's folder as summary.json, with the loss curve next to it. If the run
// ends early, Run stops the processes, the summary is partial, and the error explains how to
// resume.
func Run(ctx context.Context, options Options) (Summary, error) {
	defer options.Display.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, options.Timeout, fmt.Errorf("the run took longer than %s", options.Timeout))
	defer cancel()
	started := time.Now()
	n, err := prepare(options)
	if err != nil {
		return Summary{}, err
	}
	defer n.release()
	if options.Begin != nil {
		options.Begin()
	}
	first, err := n.measureFirst(ctx)
	if err != nil {
		return Summary{}, err
	}
	trainErr := n.train(ctx)
	n.showLast()
	n.options.Display.Close()
	summary, err := n.summarise(ctx, first, n.before+time.Since(started), trainErr == nil)
	if trainErr != nil {
		err = errors.Join(n.explain(trainErr), err)
	}
	return summary, err
}

// explain extends the error of a run that ended early with the location of its files, and with the way
// to resume it.
func (n *network) explain(err error) error {
	if n.progress.finished() {
		return fmt.Errorf("%w; summary.json and logs are in %s", err, n.dir)
	}
	if n.options.Chain.Validator != "" {
		return errors.Join(fmt.Errorf("%w; summary.json and logs are in %s; to restart the run manually, see %s", err, n.dir, byHandFile), n.noteCommands())
	}
	command, log := "psyche testnet start --resume "+n.dir, server.JournalPath(n.serverDir(), n.run.RunID)
	if n.options.Chain.Used {
		log = n.ledgerPath()
		command += fmt.Sprintf(" --slot-ms %d", n.options.Chain.SlotMs)
	}
	if _, missing := os.Stat(log); missing != nil {
		return fmt.Errorf("%w (logs are in %s)", err, n.dir)
	}
	if n.options.HeldOut != heldOutBeside(n.options.ConfigPath, n.run) {
		command += " --held-out " + n.options.HeldOut
	}
	return fmt.Errorf("%w; summary.json and logs are in %s; continue with: %s", err, n.dir, command)
}

// prepare checks everything a run needs before it starts processes, and creates the run's folder.
func prepare(options Options) (*network, error) {
	if options.Resume != "" {
		return reopen(options)
	}
	run, err := loadRun(options)
	if err != nil {
		return nil, err
	}
	if err := check(options, run); err != nil {
		return nil, err
	}
	if options, err = options.withDefaults(run); err != nil {
		return nil, err
	}
	n := &network{options: options, run: run}
	if n.dir, err = makeRunDir(options.RunDir, run.RunID); err != nil {
		return nil, err
	}
	if err := n.claim(); err != nil {
		return nil, fmt.Errorf("run folder %s: %w", n.dir, err)
	}
	if err := n.begin(); err != nil {
		n.release()
		return nil, err
	}
	return n, nil
}

// begin creates the keys and the processes of a new run.
func (n *network) begin() error {
	if err := n.makeKeys(); err != nil {
		return err
	}
	if err := n.makeProcesses("--state", filepath.Join(n.options.ConfigPath, stateFile), "--run-id", n.run.RunID); err != nil {
		return err
	}
	n.progress = newTracker(n.ids, n.run)
	n.makeCheats()
	return nil
}

// stateFile is the name of a run's configuration in Options.ConfigPath.
const stateFile = "state.toml"

// loadRun reads the configuration and sets the run id.
func loadRun(options Options) (config.Run, error) {
	path := filepath.Join(options.ConfigPath, stateFile)
	run, err := config.LoadState(path)
	if err != nil {
		return run, ConfigError{err}
	}
	if len(options.RunID) > coordinator.MaxRunIDLength {
		return run, FlagError{fmt.Errorf("--run-id has %d bytes, the limit is %d", len(options.RunID), coordinator.MaxRunIDLength)}
	}
	run.RunID = cmp.Or(options.RunID, run.RunID, filepath.Base(filepath.Clean(options.ConfigPath)))
	if _, err := run.CoordinatorState(coordinator.ClientID{}); err != nil {
		return run, ConfigError{fmt.Errorf("%s: %w", path, err)}
	}
	return run, nil
}

// withDefaults sets defaults that depend on the run and on this machine.
func (options Options) withDefaults(run config.Run) (Options, error) {
	var err error
	if options.Threads == 0 {
		options.Threads = max(1, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))/options.NumClients)
	}
	if options.HeldOut == "" {
		options.HeldOut = heldOutBeside(options.ConfigPath, run)
	}
	if options.Chain.Used && options.ServerPort == 0 {
		options.ServerPort, err = child.FreePorts()
		return options, err
	}
	options.ServerPort, err = port(options.ServerPort)
	return options, err
}

// makeRunDir creates the new folder <parent>/<run id>-<time>. It escapes special characters of the
// id as in URLs.
func makeRunDir(parent, runID string) (string, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make run folder: %w", err)
	}
	base := filepath.Join(parent, url.PathEscape(runID)+"-"+time.Now().Format("20060102-150405"))
	const runsOfASecond = 100
	for i := 1; ; i++ {
		dir := base
		if i > 1 {
			dir = fmt.Sprintf("%s-%d", base, i)
		}
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrExist) || i == runsOfASecond {
			return "", fmt.Errorf("make run folder: %w", err)
		}
	}
}

// identityFile is the name of a client's key in its folder.
const identityFile = "identity.json"

// makeKeys creates the folder of a new run, with a new key for every process.
func (n *network) makeKeys() error {
	if err := newKeyFile(n.serverDir(), server.HostKeyFile); err != nil {
		return err
	}
	for i := range n.options.NumClients {
		if err := newKeyFile(n.clientDir(i), identityFile); err != nil {
			return err
		}
	}
	return nil
}

// makeProcesses describes every process. stateFlags pass a new run to the server.
func (n *network) makeProcesses(stateFlags ...string) error {
	n.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(n.options.ServerPort))
	n.reserve()
	var err error
	if n.options.Chain.Used {
		if n.server, n.hostFlags, err = n.chainProcess(); err == nil {
			n.data, err = n.dataProcess()
		}
	} else {
		n.server, n.hostFlags, err = n.serverProcess(stateFlags)
	}
	if err != nil {
		return err
	}
	for i := range n.options.NumClients {
		dir := n.clientDir(i)
		key, err := identity.LoadKeyFile(filepath.Join(dir, identityFile))
		if err != nil {
			return err
		}
		n.ids = append(n.ids, key.ID())
		n.clients = append(n.clients, &child.Process{
			OwnGroup: true,
			Name:     clientName(i),
			Log:      filepath.Join(dir, "client.log"),
			Program:  n.options.ClientBinary,
			Env:      n.options.clientEnv(),
			Args: append(append([]string{
				"train",
				"--run-id", n.run.RunID,
				"--identity-secret-key-path", filepath.Join(dir, identityFile),
				"--events-dir", n.eventsDir(i),
				"--allow-local-paths", "--allow-inner-data", // everything is on this machine
				"--checkpoint-dir", n.checkpointDir(i),
				"--threads", strconv.Itoa(n.options.Threads),
				"--micro-batch-size", strconv.Itoa(n.options.MicroBatch),
				"--bind-p2p-address", "127.0.0.1",
				"--log", "console",
			}, n.hostFlags...), slices.Concat(n.knownServers(), n.otherFolders(i), n.options.accepted(), n.options.clientFlags(i), n.options.heldOutFlags())...),
		})
	}
	return nil
}

// reserve holds the server's port, so that other networks on this machine do not take it during the
// preparation. If the port is already in use, the server reports it later.
func (n *network) reserve() {
	if listener, err := net.Listen("tcp", n.address); err == nil {
		n.reserved = listener
	}
}

// release releases the port and the folder.
func (n *network) release() {
	n.releasePort()
	_ = n.claimed.Close() // it was only locked
}

// releasePort closes the socket that reserved the port, so that the server can listen on it.
func (n *network) releasePort() {
	if n.reserved != nil {
		_ = n.reserved.Close() // it is closed even after an error
		n.reserved = nil
	}
}

// accepted returns the flag that permits clients to continue from an older model.
func (options Options) accepted() []string {
	if options.AcceptLoss {
		return []string{"--accept-loss"}
	}
	return nil
}

// otherFolders returns the flags with the other clients' checkpoint folders for client i.
func (n *network) otherFolders(i int) (flags []string) {
	for other := range n.options.NumClients {
		if other != i {
			flags = append(flags, "--other-checkpoint-dir", n.checkpointDir(other))
		}
	}
	return flags
}

// serverProcess describes the server, and returns the flags for clients to find it.
func (n *network) serverProcess(stateFlags []string) (*child.Process, []string, error) {
	serverDir := n.serverDir()
	data, err := n.keptDataConfig()
	if err != nil {
		return nil, nil, err
	}
	if data != "" {
		stateFlags = append(stateFlags, "--data-config", data)
	}
	stateFlags = append(stateFlags, n.options.serverFlags()...)
	serverKey, err := identity.LoadKeyFile(filepath.Join(serverDir, server.HostKeyFile))
	if err != nil {
		return nil, nil, err
	}
	return &child.Process{
		OwnGroup: true,
		Name:     "server",
		Log:      filepath.Join(serverDir, "server.log"),
		Program:  n.options.ServerBinary,
		Args: append([]string{
			"server", "run",
			"--server-addr", "127.0.0.1",
			"--server-port", strconv.Itoa(n.options.ServerPort),
			"--save-state-dir", serverDir,
			"--log", "console",
		}, stateFlags...),
	}, []string{"--server-addr", n.address, "--server-key", serverKey.ID().String()}, nil
}

func (n *network) serverDir() string { return filepath.Join(n.dir, "server") }

func (n *network) clientDir(i int) string {
	return filepath.Join(n.dir, clientName(i))
}

// train runs the processes until every client has seen the end of the run.
func (n *network) train(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.releasePort()
	if err := n.server.Start(); err != nil {
		return err
	}
	defer n.server.Stop(shutdownGrace)
	if err := n.server.AwaitPort(ctx, n.address); err != nil {
		return err
	}
	if n.options.Chain.Used {
		if err := n.beginOnChain(ctx); err != nil {
			return err
		}
		stop, err := n.serveOnChain(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	closePanes, err := n.showPanes(ctx)
	if err != nil {
		return err
	}
	defer closePanes()
	// The followers end after the clients, to read the clients' last events.
	following, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	followers := new(sync.WaitGroup)
	defer func() {
		stopFollowing()
		followers.Wait()
	}()
	if err := n.goOn(ctx); err != nil {
		return err
	}
	for _, client := range n.clients {
		if err := client.Start(); err != nil {
			return err
		}
		defer client.Stop(shutdownGrace)
	}
	// The supervisors end before the processes are stopped, so that no supervisor restarts a process.
	var supervisors sync.WaitGroup
	defer supervisors.Wait()
	defer cancel(nil)
	finished, serverFailed := n.supervise(ctx, &supervisors)
	n.follow(followers, following, ctx, cancel)
	supervisors.Go(func() { n.showWhile(ctx) })
	if n.options.Faults.RandomKillNum > 0 {
		supervisors.Go(func() { n.killAtRandom(ctx, cancel) })
	}

	if err := n.awaitEnd(ctx, finished, serverFailed); err != nil {
		n.pauseRun(ctx)
		return err
	}
	return n.endOnChain(ctx)
}

// showPanes shows the logs in panes of tmux if the options request it. The caller must call closePanes.
func (n *network) showPanes(ctx context.Context) (closePanes func(), err error) {
	if !n.options.Panes {
		return func() {}, nil
	}
	shown, err := openPanes(ctx, filepath.Base(n.dir), append([]*child.Process{n.server}, n.clients...))
	if err != nil {
		return nil, err
	}
	n.progress.remark("logs are in panes: tmux attach -t %s", shown.session)
	return func() { _ = shown.close() }, nil // the network is ending anyway
}

// supervise restarts the processes that faults kill. finished receives the result of each client when it ends for good,
// and serverFailed receives the failures of the server and the data server.
func (n *network) supervise(ctx context.Context, running *sync.WaitGroup) (finished, serverFailed <-chan error) {
	clients, hosts := make(chan error, len(n.clients)), make(chan error, 2)
	for i := range n.clients {
		running.Go(func() { clients <- n.superviseClient(ctx, i) })
	}
	running.Go(func() { hosts <- n.superviseHost(ctx, n.server) })
	if n.data != nil {
		running.Go(func() { hosts <- n.superviseHost(ctx, n.data) })
	}
	return clients, hosts
}

// awaitEnd returns when every client has seen the end of the run, or with the first failure.
func (n *network) awaitEnd(ctx context.Context, finished, serverFailed <-chan error) error {
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

// superviseClient waits until client i ends by itself, as it does at the end of the run. It
// restarts a client that a fault killed.
func (n *network) superviseClient(ctx context.Context, i int) error {
	client := n.clients[i]
	for {
		select {
		case <-client.Ended():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err, killed := client.Result(); err == nil || !killed {
			return client.Failure()
		}
		n.progress.killed(n.ids[i])
		if err := pause.For(ctx, n.options.Faults.RestartDelay); err != nil {
			return err
		}
		if err := client.Start(); err != nil {
			return err
		}
		n.progress.restarted(n.ids[i])
	}
}

// superviseHost returns an error if the server, the chain or the data server ends without a fault. It
// restarts a server that a fault killed.
func (n *network) superviseHost(ctx context.Context, host *child.Process) error {
	for {
		select {
		case <-host.Ended():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err, killed := host.Result(); !killed {
			if err == nil {
				err = errors.New("unexpected exit")
			}
			return fmt.Errorf("%s ended: %w: %s", host.Name, err, host.LogTail(3))
		}
		if err := pause.For(ctx, n.options.Faults.RestartDelay); err != nil {
			return err
		}
		if err := host.Start(); err != nil {
			return err
		}
	}
}
