package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/proof/e2e/altered"
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
	m := altered.Member{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("cheater", flag.ContinueOnError)
	m.Flags(flags)
	closed := flags.Bool("closed", false, "never send openings")
	pace := flags.Duration("pace", 0, "additional time for each step")
	victim := flags.String("victim", "", "`KEY` of a member to accuse after each round; empty: none")
	silence := flags.Bool("only-silence", false, "accuse the victim only of silence, not of wrong results")
	named := flags.String("attack", cheat.None.String(), "attack: how to falsify each result")
	if err := flags.Parse(args); err != nil {
		return err
	}
	attack, err := cheat.ParseAttack(*named)
	if err != nil {
		return fmt.Errorf("-attack: %w", err)
	}
	m.Trainer = func(made env.Trainer, own identity.ID) (env.Trainer, error) {
		return cheats(made, own, attack, *pace)
	}
	if *closed {
		m.Network = cheat.Closed
	}
	if *victim != "" {
		accused, err := identity.ParseID(*victim)
		if err != nil {
			return fmt.Errorf("-victim: %w", err)
		}
		faults := []coordinator.Fault{coordinator.FaultSilent}
		if !*silence {
			faults = append(faults, coordinator.FaultResult)
		}
		m.Backend = func(host env.Backend) env.Backend { return cheat.Slandering(host, accused, faults...) }
	}
	return m.TakePart(ctx)
}

// cheats wraps a member's trainer in a cheating one.
func cheats(made env.Trainer, own identity.ID, attack cheat.Attack, pace time.Duration) (env.Trainer, error) {
	honest, ok := made.(*member.Trainer)
	if !ok {
		return nil, fmt.Errorf("unsupported trainer %T: the run must train a model", made)
	}
	trainer, ok := honest.Auditor.(cheat.Honest)
	if !ok {
		return nil, fmt.Errorf("unsupported auditor %T: the run must train a model", honest.Auditor)
	}
	cheats := &cheat.Trainer{Honest: trainer, ID: own, Attack: attack, Pace: pace}
	if local, ok := trainer.(*train.Trainer); ok {
		cheats.Levels = local.ValueBits()
	}
	return cheats, nil
}
