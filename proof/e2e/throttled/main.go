package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/proof/e2e/altered"
)

func main() {
	ctx, stop := signals.Context()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "throttled:", err)
		os.Exit(1)
	}
}

// run executes a command line.
func run(ctx context.Context, args []string) error {
	m := altered.Member{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	flags := flag.NewFlagSet("throttled", flag.ContinueOnError)
	m.Flags(flags)
	each := flags.String("each", "", "`FILE` with the time for each sequence, such as 20ms")
	cheats := flags.Bool("cheat", false, "send results of other tokens; needs a run of the dummy model with audits")
	if err := flags.Parse(args); err != nil {
		return err
	}
	m.Trainer = func(made env.Trainer, _ identity.ID) (env.Trainer, error) {
		slow := &trainer{Trainer: made, each: *each}
		if auditor, ok := made.(env.Auditor); ok {
			return &audited{trainer: slow, Auditor: auditor, cheats: *cheats}, nil
		}
		return slow, nil
	}
	return m.TakePart(ctx)
}
