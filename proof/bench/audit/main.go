package main

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/signals"
)

type commands struct {
	Calibrate   calibrateCommand   `cmd:"" help:"Audit honest trainers with all combinations of libraries (stacks), and attackers, and write a log."`
	Table       tableCommand       `cmd:"" help:"Print the results in the logs as Markdown tables."`
	Rounds      roundsCommand      `cmd:"" help:"Audit rounds of local steps by trainers with all combinations of libraries (stacks), and by attackers, and write a log."`
	RoundsTable roundsTableCommand `cmd:"" help:"Print the results in the logs of rounds as a Markdown table."`
	Worker      workerCommand      `cmd:"" hidden:"" help:"Run one trainer on a backend, for the command calibrate."`

	RoundsWorker roundsWorkerCommand `cmd:"" hidden:"" help:"Run one trainer on a backend, for the command rounds."`
}

func main() {
	ctx, stop := signals.Context()
	defer stop()
	parsed := kong.Parse(&commands{}, kong.Name("audit"), kong.Description("Measure what audits of training steps find."),
		kong.BindTo(ctx, (*context.Context)(nil)))
	parsed.FatalIfErrorf(parsed.Run())
}
