package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

// roundsTableCommand prints the results in logs of rounds.
type roundsTableCommand struct {
	Logs string `default:"proof/bench/audit/logs/rounds" type:"path" help:"Folder of the logs."`
}

func (c *roundsTableCommand) Run() error {
	rows, err := readRows(c.Logs)
	if err != nil {
		return err
	}
	printRounds(os.Stdout, rows)
	return nil
}

// printRounds prints a line for each log and kind. An audit fails if rounding does not explain an
// error beyond the limits.
func printRounds(out io.Writer, rows []row) {
	type group struct{ log, kind string }
	all := map[group][]row{}
	var groups []group
	for _, r := range rows {
		g := group{strings.TrimSuffix(filepath.Base(r.log), rawlog.Suffix), r.Kind}
		if all[g] == nil {
			groups = append(groups, g)
		}
		all[g] = append(all[g], r)
	}
	slices.SortFunc(groups, func(a, b group) int {
		if a.kind == "honest" || b.kind == "honest" {
			return cmp.Or(-boolOrder(a.kind == "honest", b.kind == "honest"), strings.Compare(a.log, b.log))
		}
		return cmp.Or(strings.Compare(a.log, b.log), strings.Compare(a.kind, b.kind))
	})
	fmt.Fprintln(out, "| log | kind | audits | error: smallest, median, largest | largest error of a chunk | beyond the limits | stopped |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, g := range groups {
		var errs []float64
		chunk, beyond, stopped := 0.0, 0, 0
		for _, r := range all[g] {
			errs, chunk, stopped = append(errs, r.Error), max(chunk, worstOf(r)), stopped+r.Stopped
			if !r.passes(audit.LocalLimits) {
				beyond++
			}
		}
		slices.Sort(errs)
		fmt.Fprintf(out, "| %s | %s | %d | %.2g, %.2g, %.2g | %.2g | %d | %d |\n", g.log, g.kind, len(errs), errs[0], errs[len(errs)/2], errs[len(errs)-1], chunk, beyond, stopped)
	}
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
