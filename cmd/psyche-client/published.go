package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/published"
)

// publishedVariables are the flags of train for which the original Psyche documents environment
// variables. docs/command-lines.md lists all of them.
var publishedVariables = []string{
	"identity-secret-key-path", "bind-p2p-port", "bind-p2p-interface", "iroh-relay", "iroh-discovery", "logs",
	"oltp-auth-header", "oltp-metrics-url", "oltp-tracing-url", "oltp-logs-url", "oltp-report-interval", "metrics-local-port",
	"run-id", "server-addr", "data-parallelism", "tensor-parallelism", "micro-batch-size", "write-gradients-dir",
	"eval-tasks", "eval-fewshot", "eval-seed", "eval-task-max-docs", "prompt-task", "checkpoint-dir", "hub-repo",
	"gcs-bucket", "gcs-prefix", "hub-max-concurrent-downloads", "wandb-project", "wandb-run", "wandb-group", "wandb-entity",
	"write-log", "compression", "optim-stats-steps", "grad-accum-in-fp32", "dummy-training-delay-secs", "max-concurrent-parameter-requests",
	"max-concurrent-downloads", "sidecar-port", "delete-old-steps", "keep-steps", "events-dir", "keep-event-files",
}

// joinVariables returns the flags of join that also read environment variables: all except settings in
// the link.
func joinVariables() []string {
	return slices.DeleteFunc(slices.Clone(publishedVariables), func(name string) bool { return name == "run-id" || name == "server-addr" })
}

// idleFlags are flags of the original Psyche that have no effect here. Each logs a warning if it is
// given.
type idleFlags struct {
	GradAccumInFP32 bool    `name:"grad-accum-in-fp32" help:"No effect: gradients are always summed in f32."`
	IrohRelay       string  `default:"psyche" placeholder:"KIND" enum:"psyche,n0,disabled" help:"disabled is the same as --no-relaying. psyche and n0 name relays of another network; here, members relay for each other (--p2p-relay)."`
	IrohDiscovery   string  `default:"n0" placeholder:"KIND" enum:"n0,local" help:"local is the same as --local-discovery. n0 names a service of another network; here, the run's host gives each member the addresses of the others."`
	SidecarPort     *uint16 `placeholder:"PORT" help:"No effect: no part of the training runs in Python."`
	Compression     *uint32 `placeholder:"N" help:"No effect: this flag set the level of zlib, which clients do not use."`
	KeepEventFiles  *int    `placeholder:"N" help:"No effect: a process writes one event log file."`
}

// apply applies the flags that have a partial effect.
func (f idleFlags) apply(network *networkFlags) {
	if f.IrohRelay == "disabled" {
		network.Relaying = false
	}
	if f.IrohDiscovery == "local" {
		network.LocalDiscovery = true
	}
}

// idleFlag is a flag that has no effect.
type idleFlag struct {
	given     bool
	name, why string
}

// warn logs the given flags that have no effect, with the reason.
func (f idleFlags) warn(logger *slog.Logger) {
	warnIdle(logger, []idleFlag{
		{f.GradAccumInFP32, "--grad-accum-in-fp32", "gradients are always summed in f32"},
		{f.SidecarPort != nil, "--sidecar-port", "no part of the training runs in Python"},
		{f.Compression != nil, "--compression", "clients do not use zlib, whose level this flag set"},
		{f.KeepEventFiles != nil, "--keep-event-files", "a process writes one event log file"},
		{f.IrohRelay == "n0", "--iroh-relay n0", "members relay for each other; name further relays with --p2p-relay"},
	})
}

func warnIdle(logger *slog.Logger, flags []idleFlag) {
	for _, flag := range flags {
		if flag.given {
			logger.Warn("this flag has no effect", "flag", flag.name, "because", flag.why)
		}
	}
}

// logFormat is the log format of a process, in lower case.
type logFormat string

// drawn reports whether the format is a terminal display.
func (f logFormat) drawn() bool { return strings.HasPrefix(string(f), "tui") }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *logFormat) UnmarshalText(text []byte) error {
	switch name := strings.ToLower(string(text)); name {
	case "console", "json", "none", "tui", "tui-and-console":
		*f = logFormat(name)
		return nil
	}
	return fmt.Errorf("want console, json, none or tui, not %q", text)
}

// showIdentityCommand prints the id of a key file.
type showIdentityCommand struct {
	IdentitySecretKeyPath string `short:"i" type:"path" placeholder:"FILE" env:"IDENTITY_SECRET_KEY_PATH" help:"Key file: solana-keygen JSON or 32 raw bytes, as openssl rand 32 makes them. Without it the key comes from RAW_IDENTITY_SECRET_KEY (hex), RAW_WALLET_PRIVATE_KEY (base58 or JSON), or the file that WALLET_PRIVATE_KEY_PATH or WALLET_PATH names."`
}

// Run prints the id of the key.
func (c *showIdentityCommand) Run(_ context.Context, t terminal) error {
	key, found, err := identity.Key{}, true, error(nil)
	if c.IdentitySecretKeyPath != "" {
		key, err = identity.LoadKeyFile(c.IdentitySecretKeyPath)
	} else {
		key, found, err = identity.WalletFromEnvironment(os.LookupEnv)
	}
	if err != nil {
		return err
	}
	if !found {
		return usageError{fmt.Errorf("no key: give --identity-secret-key-path, or set %s", strings.Join(identity.WalletVariables(), ", "))}
	}
	_, err = fmt.Fprintln(t.Out, key.ID())
	return err
}

// manualCommand prints the help of all commands.
type manualCommand struct {
	published.Manual `embed:""`
}

// Run writes the pages.
func (c *manualCommand) Run(t terminal, line *kong.Context) error { return c.Write(t.Out, line) }
