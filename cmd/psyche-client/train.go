package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/face/console"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/event"
)

// trainCommand joins a run and trains until it is finished.
type trainCommand struct {
	RunID       string `help:"Name of the run to join." required:"" env:"RUN_ID" group:"The run:"`
	hostFlags   `embed:"" group:"The run:"`
	memberFlags `embed:""`

	link string // invite link of the run, as for a shell; empty: unknown

	KeepIdentity bool `help:"If no other key is given, use a persistent key, created at the first start, in the state folder, as join does: psyche/identity.json in XDG_STATE_HOME, or in ~/.local/state." group:"Your key:"`
}

// memberFlags configure how a member takes part in a run on any host.
type memberFlags struct {
	IdentitySecretKeyPath string `short:"i" aliases:"wallet-private-key-path" help:"Key file: solana-keygen JSON or 32 raw bytes. Default: RAW_IDENTITY_SECRET_KEY (hex); on a chain also RAW_WALLET_PRIVATE_KEY (base58 or JSON), or the file in WALLET_PRIVATE_KEY_PATH or WALLET_PATH. Without any of these, the client uses its persistent key, or else a new key." type:"path" group:"Your key:"`
	MemberName            string `env:"PSYCHE_MEMBER_NAME" placeholder:"NAME" help:"Display name shown next to this member's key: up to 32 bytes. Signed with each join, so it stays in the run's log permanently; it is not proof of identity. With the user's persistent key, later starts use the same name." group:"Your key:"`
	networkFlags          `embed:"" group:"Network:"`

	sourceFlags `embed:"" group:"Model and data:"`

	AcceptLoss    bool `help:"Join immediately with the older model in --checkpoint-dir even if no connected member has the newest recorded model; training that neither this model nor a connected member has is lost. By default, the client waits for a member that has the newest model." group:"In the run:"`
	FollowUpdates bool `help:"Stay in the run if its main authority replaces the trained model. By default, the client exits." group:"In the run:"`

	MicroBatchSize int         `help:"Sequences in one pass through the model; fewer use less memory." default:"1" group:"Computing:"`
	Threads        threadCount `help:"Compute threads. Several clients on one machine must share its CPUs. 0 uses OMP_NUM_THREADS, or else one thread per CPU." default:"0" group:"Computing:"`

	AuditIdle bool `help:"In a run with audits, also check results of other members in rounds in which this client trains, after it has computed its own result. A client that does not train in a round always checks." group:"In the run:"`

	libraryFlags  `embed:"" group:"Computing:"`
	computeFlags  `embed:"" group:"Computing:"`
	parallelFlags `embed:"" group:"Computing:"`

	checkpointFlags `embed:"" group:"Checkpoints:"`
	uploadFlags     `embed:"" group:"Uploads and the Hub:"`
	hubFlags        `embed:"" group:"Uploads and the Hub:"`
	FinalWait       time.Duration `help:"Maximum time to stay after the run is finished. In this time, the client gets the final model if it missed the end, sends the model to members that missed the end, or waits until a full disk has room for it. 0s means no wait." default:"30s" group:"In the run:"`

	EventsDir string `help:"Folder for the event log, events.jsonl. Default: --checkpoint-dir." type:"path" group:"Logs and metrics of this machine:"`

	DummyTrainingDelaySecs float64 `placeholder:"SECONDS" help:"Duration of each training if the run's checkpoint is Dummy, a model for network tests." group:"In the run:"`

	debugFlags   `embed:"" group:"Logs and metrics of this machine:"`
	trackerFlags `embed:"" group:"Trackers:"`
	Telemetry    telemetry.Flags `embed:"" group:"Trackers:"`
	evalFlags    `embed:"" group:"Evaluation:"`
	idleFlags    `embed:"" group:"Flags of the original Psyche:"`
}

// Help returns the text below the command's summary in --help.
func (c *trainCommand) Help() string {
	return `Joins at the start of the next epoch, downloads the model from the members (or from the run's
checkpoint) and trains. The run is on a server (--server-addr) or on a Solana chain (--rpc). On a
chain, the key pays for the client's transactions. If the client loses the connection to the
server, it reconnects; if it loses the model, it joins again. Ctrl-C leaves the run. After the run
is finished, the client stays for some time to give the final model to members that missed the end.`
}

// Run joins the run.
func (c *trainCommand) Run(ctx context.Context, t terminal) (err error) {
	if err := c.checkFlags(ctx); err != nil {
		return usageError{err}
	}
	var given *console.Account
	defer func() { c.tell(given, t) }()
	shown := newDisplay(c.Logs, t)
	defer shown.close()
	logger, logFile, err := c.open(t, shown)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	c.warn(logger)
	c.apply(&c.networkFlags)
	if !c.DeleteOldSteps {
		c.KeepSteps = 0
	}
	key, err := c.key(logger) // first, because its folder is created with access for this user only
	if err != nil {
		return err
	}
	unclaim, err := c.claimCheckpointDir(logger) // before the event log there is opened
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unclaim()) }()
	seen, err := c.observe(ctx, key, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seen.close()) }()
	given = console.NewAccount(c.RunID, key.ID(), !c.Given())
	given.Link = c.link
	seen.events.Watch(given.See)
	shown.start(t, c, key.ID(), seen)
	signals.Last(ctx, shown.close)
	return c.train(ctx, key, seen, shown)
}

// train takes part in the run until it is finished.
func (c *trainCommand) train(ctx context.Context, key identity.Key, seen *observed, shown *display) (err error) {
	logger, events := seen.logger, seen.events
	devices, library := c.openDevices(logger)
	if library != nil && !torch.Missing(library) {
		return library
	}
	written, err := writeResults(c.WriteGradientsDir, logger)
	if err != nil {
		return err
	}
	defer written.close()
	uploads, err := c.openUploads(ctx, c.hubFlags, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.finishUploads(ctx, uploads, logger)) }()
	measuring, err := c.measure(ctx, c.hubFlags, events, logger)
	if err != nil {
		return err
	}
	defer measuring.close()
	network, closeNetwork, err := c.connect(ctx, key, events, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNetwork()) }()
	shown.use(network)
	source, err := c.modelSource(key.ID(), events, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	host, err := c.reach(ctx, c.RunID, key, network.Addrs(), events, logger)
	if err != nil {
		return err
	}
	release := signals.Hold(ctx) // the member leaves its run
	defer func() { err = errors.Join(err, host.ended()); release() }()

	source.Hosted = &modelsource.Hosted{Addr: c.ServerAddr, RunID: c.RunID, Run: host.run, Key: host.key, Logger: logger}
	training := &trainers{command: c, key: key, logger: logger, host: host.key, run: host.run, devices: devices, events: events, board: seen.board, seen: written, hosted: source.Hosted, library: library}
	factory := training.factory(measuring)
	defer func() { err = errors.Join(err, factory.Close()) }()
	o := c.memberOptions(network, source)
	o.Key, o.Backend, o.Data = key, host.Backend, factory.Data()
	o.NewTrainer, o.CheckRun = leavingLittle(factory.Build), shown.naming(training.checkRun)
	o.DiskHangs, o.Computes = func() { endWithoutTheDisk(ctx, shown.close) }, release
	o.Saved, o.Events, o.Logger = uploads.saved(), events, logger
	node, err := client.New(o)
	if err != nil {
		return err
	}
	uploads.start(c.RunID, c.CheckpointDir, logger, node.Uploaded)
	uploads.tell(events, logger)
	if err := node.Run(ctx); err != nil {
		return keepEvidence(err, c.CheckpointDir)
	}
	measuring.complete(ctx, c.FinalWait)
	return nil
}

// openDevices loads libtorch and returns the devices that train. If there is no libtorch, it returns
// an error for which torch.Missing is true; the client can then join only runs of the dummy model.
func (c *trainCommand) openDevices(logger *slog.Logger) ([]torch.Device, error) {
	if err := c.load(c.Threads, logger); err != nil {
		return nil, err
	}
	return c.trainingDevices(c.deviceFlags)
}

// memberOptions returns the options of a member that follow from flags, its network, and its source of models.
func (c *trainCommand) memberOptions(network *p2pnet.Network, source *modelsource.Source) client.Options {
	return client.Options{
		Network:           network,
		Misbehaved:        network.Misbehaved,
		MakeRoom:          network.FreeDisk,
		Initial:           source.Initial,
		Archive:           source.Archive,
		RunID:             c.RunID,
		Name:              c.MemberName,
		FollowUpdates:     c.FollowUpdates,
		Downloads:         c.MaxConcurrentDownloads,
		ParameterRequests: c.MaxConcurrentParameterRequests,
		ResultMemory:      uint64(c.MaxBlobMemory) << 20 / 16,
		CheckpointDir:     c.CheckpointDir,
		KeepCheckpoints:   c.KeepSteps,
		AcceptLoss:        c.AcceptLoss,
		AuditIdle:         c.AuditIdle,
		FinalWait:         cmp.Or(c.FinalWait, -1),
	}
}

// modelSource returns the source of models that no member shares.
func (c *trainCommand) modelSource(member identity.ID, events *event.Log, logger *slog.Logger) (*modelsource.Source, error) {
	return modelsource.New(modelsource.Options{
		RunID: c.RunID, Member: member,
		ModelPath: c.ModelPath, OtherDirs: c.OtherCheckpointDir, Repo: c.HubRepo, Bucket: c.GCSBucket, Prefix: c.GCSPrefix,
		SharedMiB:       max(c.MaxBlobDisk, c.MaxBlobMemory),
		AllowLocalPaths: c.AllowLocalPaths, AllowPrivateRepos: c.AllowPrivateRepos, Credentials: c.GCSCredentials,
		Hub:    func(withToken bool) (*hub.Client, error) { return c.client(logger, withToken) },
		Logger: logger, Events: events,
	})
}

// tell prints the process's contribution to the run: for people, or as a record of a JSON log.
func (c *trainCommand) tell(given *console.Account, t terminal) {
	switch {
	case given == nil || c.Logs == "none":
	case c.Logs == "json":
		given.Log(slog.New(slog.NewJSONHandler(t.Err, nil)))
	default:
		given.Print(t.Err)
	}
}

// key loads the participant's key, or creates one: for this user, or for this process only.
func (c *trainCommand) key(logger *slog.Logger) (identity.Key, error) {
	if c.IdentitySecretKeyPath != "" {
		return identity.LoadKeyFile(c.IdentitySecretKeyPath)
	}
	key, found, err := c.keyFromEnvironment()
	if err != nil || found {
		return key, err
	}
	if c.KeepIdentity {
		if key, err = keptKey(logger); err == nil {
			err = c.keepName(logger)
		}
		return key, err
	}
	if key, err = identity.Generate(rand.Reader); err != nil {
		return key, err
	}
	logger.Warn("no key given: this process uses a new key, and the next start will have another identity", "id", key.ID())
	return key, nil
}

// keyFromEnvironment reads the key from environment variables. On a chain, these include the
// variables of a wallet, which pays.
func (c *trainCommand) keyFromEnvironment() (key identity.Key, found bool, err error) {
	if c.Given() {
		return identity.WalletFromEnvironment(os.LookupEnv)
	}
	return identity.KeyFromEnvironment(os.LookupEnv)
}

// connect opens the peer-to-peer network of the run.
func (c *trainCommand) connect(ctx context.Context, key identity.Key, events *event.Log, logger *slog.Logger) (*p2pnet.Network, func() error, error) {
	options, err := c.options(key, events, logger)
	if err != nil {
		return nil, nil, err
	}
	store, err := c.openStore(c.CheckpointDir, logger)
	if err != nil {
		return nil, nil, err
	}
	node, err := p2p.New(ctx, options)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w; choose with --bind-p2p-address and --bind-p2p-port", err), store.Close())
	}
	return p2pnet.New(node, store, c.RunID), func() error { return errors.Join(node.Close(), store.Close()) }, nil
}
