package main

import (
	"fmt"
	"io"
	"strings"
)

// absent is the table entry for a missing value.
const absent = "–"

// printTables prints the results of the rows in Markdown.
func printTables(w io.Writer, rows []summary) error {
	var text strings.Builder
	text.WriteString("| row | batch | rounds | round ms | training % median | mean | computing % median | mean | tok/s | to peers B | from server B | warm-up s | cooldown s | load | clients CPU % | other CPU % |\n")
	text.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range rows {
		if s.Skipped == "" {
			fmt.Fprintf(&text, "| %s | %d | %d | %.0f | %.1f | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %.1f | %.1f | %.1f | %s | %s |\n",
				s.Row, s.Batch, s.Rounds, s.RoundMS.Median, 100*s.TrainShare.Median, 100*s.TrainShare.Mean,
				100*s.ComputeShare.Median, 100*s.ComputeShare.Mean, s.TokensPerSecond, s.PeerBytes, s.ServerBytes,
				s.StartSeconds, s.CooldownSeconds, s.Load, percent(s.ClientsCPU), percent(s.OthersCPU))
		}
	}
	text.WriteString("\nMedians of the parts of a round, in milliseconds:\n\n| row | " + strings.Join(parts, " | ") + " | commit, included |\n")
	text.WriteString(strings.Repeat("|---", len(parts)+2) + "|\n")
	for _, s := range rows {
		if s.Skipped == "" {
			text.WriteString("| " + s.Row + " | " + strings.Join(s.partCells(), " | ") + " |\n")
		}
	}
	text.WriteString(notes(rows))
	_, err := io.WriteString(w, text.String())
	return err
}

// partCells returns the cells of the parts and of the journal's share in them.
func (s summary) partCells() []string {
	var cells []string
	for _, part := range parts {
		cell := absent
		if f, logged := s.Parts[part]; logged {
			cell = fmt.Sprintf("%.1f", f.Median)
		}
		cells = append(cells, cell)
	}
	if s.CommitMS == nil {
		return append(cells, absent)
	}
	return append(cells, fmt.Sprintf("%.1f", s.CommitMS.Median))
}

// contained maps a part that is not reported to the part that contains its time.
var contained = map[string]string{
	partDecode: "part of apply: no client wrote a span of that name",
	partEncode: "part of train: no client wrote a span of that name",
	partGossip: "part of witness: no client wrote results_held",
	partFetch:  "part of witness: no client wrote results_held",
	partCommit: "not known: the server wrote no span of that name",
}

// notes explains the missing values in the tables.
func notes(rows []summary) string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, s := range rows {
		if s.Skipped != "" {
			fmt.Fprintf(&text, "\n%s: skipped, %s\n", s.Row, s.Skipped)
		}
		if s.Lost > 0 {
			fmt.Fprintf(&text, "\n%s: in %d rounds a client had no result\n", s.Row, s.Lost)
		}
		for _, part := range s.NotTold {
			if !seen[part] {
				seen[part] = true
				fmt.Fprintf(&text, "\n%s (%s): %s\n", part, absent, contained[part])
			}
		}
	}
	return text.String()
}

func percent(share *float64) string {
	if share == nil {
		return absent
	}
	return fmt.Sprintf("%.0f", 100**share)
}
