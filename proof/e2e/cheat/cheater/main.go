package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/e2e/cheat"
)

func main() {
	ctx, stop := signals.Context()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cheater:", err)
		os.Exit(1)
	}
}

// run executes a command line.
func run(ctx context.Context, args []string) error {
	m := cheater{logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("cheater", flag.ContinueOnError)
	flags.StringVar(&m.server, "server", "", "the run's server, `HOST:PORT`")
	flags.StringVar(&m.runID, "run", "", "the run to join")
	flags.StringVar(&m.listen, "listen", "127.0.0.1", "`ADDRESS` to listen on")
	flags.StringVar(&m.keyPath, "key", "", "the member's key `FILE`")
	flags.StringVar(&m.eventsPath, "events", "", "event log, a `FILE`")
	flags.BoolVar(&m.closed, "closed", false, "never send openings")
	flags.DurationVar(&m.pace, "pace", 0, "additional time for each step")
	victim := flags.String("victim", "", "`KEY` of a member to accuse after each round; empty: none")
	silence := flags.Bool("only-silence", false, "accuse the victim only of silence, not of wrong results")
	attack := flags.String("attack", cheat.None.String(), "attack: how to falsify each result")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if m.attack, err = cheat.ParseAttack(*attack); err != nil {
		return fmt.Errorf("-attack: %w", err)
	}
	if *victim != "" {
		if m.victim, err = identity.ParseID(*victim); err != nil {
			return fmt.Errorf("-victim: %w", err)
		}
	}
	m.faults = []coordinator.Fault{coordinator.FaultSilent}
	if !*silence {
		m.faults = append(m.faults, coordinator.FaultResult)
	}
	return m.takePart(ctx)
}
