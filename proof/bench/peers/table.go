package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// printTables prints the results in the logs as Markdown.
func printTables(w io.Writer, r rows, done map[string]measurement) {
	losses := levels(r, done)
	printCurves(w, r, done, losses)
	for _, l := range r.Link {
		printLink(w, r, l, done, losses)
	}
	printKills(w, r, done)
}

// curveOf returns the curve of a system, if it is measured.
func curveOf(done map[string]measurement, s system) (measurement, bool) {
	m, found := done["curve-"+slug(s.Name)]
	return m, found && len(m.Points) > 1
}

func linkOf(done map[string]measurement, l link, s system) (measurement, bool) {
	m, found := done["link-"+slug(l.Name)+"-"+slug(s.Name)]
	return m, found && len(m.Points) > 1
}

// exchangesTo returns the number of exchanges after which a curve first reaches a loss, by linear
// interpolation between its points; NaN: never.
func exchangesTo(m measurement, loss float64) float64 {
	before := point{}
	for _, p := range m.Points {
		if p.HeldOut == 0 {
			continue
		}
		if p.HeldOut <= loss {
			if before.HeldOut == 0 {
				return float64(p.Step)
			}
			share := (before.HeldOut - loss) / (before.HeldOut - p.HeldOut)
			return float64(before.Step) + share*float64(p.Step-before.Step)
		}
		before = p
	}
	return math.NaN()
}

// lowest returns the lowest held-out loss of a curve.
func lowest(m measurement) float64 {
	low := math.Inf(1)
	for _, p := range m.Points {
		if p.HeldOut > 0 {
			low = min(low, p.HeldOut)
		}
	}
	return low
}

// levels returns the losses at which systems are compared: a loss that all systems reach, a loss
// that half of the other systems reach, and a loss that the first Psyche system just reaches.
func levels(r rows, done map[string]measurement) (losses []float64) {
	own := 0.0
	var all, others []float64
	for _, s := range r.System {
		m, found := curveOf(done, s)
		if !found || s.Only != "" {
			continue
		}
		all = append(all, lowest(m))
		switch {
		case s.State == "":
			others = append(others, lowest(m))
		case own == 0:
			own = lowest(m)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if len(others) == 0 {
		others = all
	}
	slices.Sort(others)
	for _, loss := range []float64{slices.Max(all), others[len(others)/2], own} {
		if loss = math.Ceil(loss*20) / 20; loss > 0 && !slices.Contains(losses, loss) {
			losses = append(losses, loss)
		}
	}
	return losses
}

func printCurves(w io.Writer, r rows, done map[string]measurement, losses []float64) {
	fmt.Fprintf(w, "| system | sequences per exchange | exchanges | held-out loss at the end | CPU s, all members |%s replicas equal |\n|---|---|---|---|---|%s---|\n",
		each(losses, func(loss float64) string { return fmt.Sprintf(" tokens to %.2f |", loss) }), strings.Repeat("---|", len(losses)))
	for _, s := range r.System {
		m, found := curveOf(done, s)
		if !found {
			continue
		}
		last, cpu := m.Points[len(m.Points)-1], 0.0
		for _, one := range m.CPU {
			cpu += one
		}
		fmt.Fprintf(w, "| %s | %d | %d | %.3f | %.0f |%s %s |\n", s.title(), m.Sequences, last.Step, last.HeldOut, cpu,
			each(losses, func(loss float64) string {
				return " " + orDash(exchangesTo(m, loss)*float64(m.Sequences*sequenceLength)/1000, "%.0f k") + " |"
			}), replicas(m))
	}
	fmt.Fprintln(w)
}

// sequenceLength is the sequence length of the quickstart, in tokens.
const sequenceLength = 256

// printLink prints the speed of the systems over a link, ordered by the time to the higher loss.
func printLink(w io.Writer, r rows, l link, done map[string]measurement, losses []float64) {
	type row struct {
		first float64
		text  string
	}
	var all []row
	for _, s := range r.System {
		m, found := linkOf(done, l, s)
		curve, known := curveOf(done, s)
		if !found || !known || len(losses) == 0 {
			continue
		}
		seconds, cpu := m.exchangeSeconds(), 0.0
		for _, one := range m.CPU {
			cpu += one
		}
		tokens := float64(m.Sequences * sequenceLength)
		share, bytes := math.NaN(), math.NaN()
		if alone, found := linkOf(done, link{Name: "loopback"}, s); found && !l.loopback() {
			share = 100 * alone.exchangeSeconds() / seconds
		}
		if m.Sent > 0 {
			bytes = m.Sent / (tokens / members)
		}
		first := exchangesTo(curve, losses[0]) * seconds
		if math.IsNaN(first) {
			first = math.Inf(1)
		}
		last := m.Points[len(m.Points)-1]
		all = append(all, row{first, fmt.Sprintf("| %s | %.2f | %.0f | %s | %s |%s %s | %.2f | %s |", s.title(), seconds, tokens/seconds,
			orDash(share, "%.0f %%"), orDash(bytes, "%.1f"),
			each(losses, func(loss float64) string { return " " + orDash(exchangesTo(curve, loss)*seconds, "%.0f") + " |" }),
			replicas(m), cpu/float64(last.Step), m.Load)})
	}
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b row) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return 0
	})
	fmt.Fprintf(w, "**%s**\n\n| system | s per exchange | tokens/s | of its loopback speed | bytes sent per token that a member trains |%s replicas equal | CPU s per exchange | load |\n|---|---|---|---|---|%s---|---|---|\n",
		l.Name, each(losses, func(loss float64) string { return fmt.Sprintf(" s to %.2f |", loss) }), strings.Repeat("---|", len(losses)))
	for _, one := range all {
		fmt.Fprintln(w, one.text)
	}
	fmt.Fprintln(w)
}

func printKills(w io.Writer, r rows, done map[string]measurement) {
	var lines []string
	for _, s := range r.System {
		m, found := done["kill-"+slug(s.Name)]
		if !found || m.Killed == nil {
			continue
		}
		k, before, goesOn, back := m.Killed, "–", "–", "–"
		if k.Before > 0 {
			before = fmt.Sprintf("%.1f", k.Before)
		}
		if !k.Failed && k.Message == "" {
			goesOn = fmt.Sprintf("%.1f", k.Stall)
		}
		if k.Back > 0 {
			back = fmt.Sprintf("%.1f", k.Back)
		}
		outcome := k.Message
		switch {
		case k.Failed:
			outcome = fmt.Sprintf("%s after %.1f s", k.Message, k.Stall)
		case k.Lost > 0:
			outcome = fmt.Sprintf("exchanges that all members repeated: %d", k.Lost)
		}
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", s.title(), before, goesOn, back, outcome, m.Load))
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "| system | exchange before, s | longest pause of the other members, s | from its restart until the killed member trains, s | | load |\n|---|---|---|---|---|---|\n%s\n\n", strings.Join(lines, "\n"))
	}
}

func each(losses []float64, text func(float64) string) (all string) {
	for _, loss := range losses {
		all += text(loss)
	}
	return all
}

func orDash(value float64, format string) string {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return "–"
	}
	return fmt.Sprintf(format, value)
}

// replicas reports whether all members ended with the same weights.
func replicas(m measurement) string {
	switch {
	case m.equal():
		return "yes"
	case m.Apart > 0:
		return fmt.Sprintf("**no**, %.1g apart", m.Apart)
	}
	return "**no**"
}
