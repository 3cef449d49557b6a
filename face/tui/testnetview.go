package tui

import (
	"fmt"
	"math"
	"slices"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/record/event"
)

// remarksShown is the maximum number of remarks on the screen.
const remarksShown = 5

// render draws everything into a screen of the model's size.
func (m testnetModel) render() string {
	width, height := max(m.width, leastWidth), max(m.height, leastHeight)
	p, remarks := m.testnet.now()
	right := fmt.Sprintf("step %d of %d  epoch %d", p.State.ShownStep(), p.State.TotalSteps, p.State.Epoch)
	left := strong.Render("psyche testnet")
	if named := left + "  run " + printable(p.RunID); lipgloss.Width(named)+2+len(right) <= width {
		left = named
	}
	lines := []string{
		apart(left, right, width),
		phase(p.State, p.Since, m.at) + fmt.Sprintf("  %d members, %d waiting", len(p.State.Members), p.State.Pending),
		filling(p, width),
		speed(p),
	}
	losses := points(p.Losses)
	least, below := 0, 0
	if height >= roomyHeight {
		below = 2 // a title and one line below the chart
		if len(losses) > 1 {
			least = leastChart
		}
	}
	lines = append(lines, clientLines(p, width, height-len(lines)-least-below)...)
	sections, room := fit([][]string{remarked(remarks, width), judged(p, width)}, height-len(lines)-least)
	if drawn := chart(losses, width, min(room+least-1, mostChart)); len(drawn) > 0 {
		lines = append(append(lines, rule("loss", width)), drawn...)
	}
	slices.Reverse(sections)
	return screen(append(lines, slices.Concat(sections...)...), width, height)
}

// filling shows the progress of the condition that ends the phase.
func filling(p testnet.Progress, width int) string {
	const words = 48 // width of the texts of both parts of a round, with their numbers
	each := min(max((width-words)/2, 3), 20)
	switch p.State.RunState {
	case "WaitingForMembers":
		return fmt.Sprintf("%d clients wait, %d begin an epoch %s", p.State.Pending, p.MinClients, bar(p.State.Pending, p.MinClients, each))
	case "RoundTrain", "RoundWitness":
		if width < words+6 {
			return fmt.Sprintf("%d/%d results %s  %d/%d witnesses %s", p.Results, p.State.Batches, bar(p.Results, p.State.Batches, each),
				p.State.Witnesses, p.State.Quorum, bar(p.State.Witnesses, p.State.Quorum, each))
		}
		return fmt.Sprintf("%d of %d results %s  %s", p.Results, p.State.Batches, bar(p.Results, p.State.Batches, each), quorum(p.State, each))
	}
	return quorum(p.State, each)
}

// speed shows the progress and the speed of the run.
func speed(p testnet.Progress) string {
	loss := "no loss yet"
	if newest := p.Newest(); newest.Step > 0 {
		loss = fmt.Sprintf("loss %.3f", newest.Loss)
	}
	done := max(p.State.Step, 1) - 1 // the step of a state is the next one
	if p.State.RunState == "Finished" {
		done = p.State.TotalSteps
	}
	part, whole := int(done), int(max(p.State.TotalSteps, 1))
	left := ""
	if p.Left > 0 {
		left = "  about " + p.Left.Round(time.Second).String() + " left"
	}
	return fmt.Sprintf("%s %d %%  %s  %.0f tokens/s  %d tokens%s", bar(part, whole, 10), min(100*part/whole, 100), loss, p.TokensRate, p.Tokens, left)
}

// points are the losses that can be drawn.
func points(losses []testnet.RoundLoss) []point {
	drawn := make([]point, 0, len(losses))
	for _, l := range losses {
		if !math.IsNaN(l.Loss) && !math.IsInf(l.Loss, 0) {
			drawn = append(drawn, point{l.Step, l.Loss})
		}
	}
	return drawn
}

// judged shows open trials, the newest ejections, and audits that clients report.
func judged(p testnet.Progress, width int) []string {
	lines := (court{p.Trials, p.Ejected}).lines(p.NameOf)
	if len(p.Audits) > 0 {
		lines = append(lines, "audits reported by clients: "+audited(p.Audits))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{rule("audits and trials", width)}, lines...)
}

// remarked shows the last remarks, newest first.
func remarked(remarks []Line, width int) []string {
	if len(remarks) == 0 {
		return nil
	}
	lines := []string{rule("remarks", width)}
	for _, r := range slices.Backward(remarks[max(0, len(remarks)-remarksShown):]) {
		lines = append(lines, faint.Render(r.At.Format(time.TimeOnly))+" "+printable(r.Text))
	}
	return lines
}

// column is a column in the table of clients.
type column struct {
	title string
	width int
	text  func(testnet.ClientProgress) string
}

// columns are the columns after name and role. A narrow screen omits the last columns.
var columns = []column{
	{"loss", 6, func(c testnet.ClientProgress) string { return known(c.LossStep > 0, "%.3f", c.Loss) }},
	{"tokens/s", 8, func(c testnet.ClientProgress) string { return known(c.Speed > 0, "%.0f", c.Speed) }},
	{"trains", 6, func(c testnet.ClientProgress) string { return known(c.Share > 0, "%.0f %%", 100*c.Share) }},
	{"sent", 9, func(c testnet.ClientProgress) string { return diskspace.Format(c.Sent) }},
	{"sends", 11, func(c testnet.ClientProgress) string { return diskspace.Format(c.SentRate) + "/s" }},
	{"restarts", 8, func(c testnet.ClientProgress) string { return fmt.Sprint(c.Restarts) }},
}

// known formats a number, if it is known.
func known(is bool, format string, value float64) string {
	if !is {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

// clientLines is a table of as many clients as fit.
func clientLines(p testnet.Progress, width, room int) []string {
	names, roles := len("client*"), len("role, * witness")
	for _, c := range p.Clients {
		names, roles = max(names, len(c.Name)+1), max(roles, len(role(c, p.State)))
	}
	left := width - names - 2 - roles
	gap, shown := 1, 0
	for need := 0; shown < len(columns) && need+gap+columns[shown].width <= left; shown++ {
		need += gap + columns[shown].width
	}
	if shown == len(columns) { // a wide screen has room for gaps
		for gap < 4 && left >= tableWidth(gap+1) {
			gap++
		}
	}
	title := fmt.Sprintf("%-*s  %-*s", names, "client", roles, "role, * witness")
	for _, c := range columns[:shown] {
		title += fmt.Sprintf("%*s", gap+c.width, c.title)
	}
	lines := []string{faint.Render(title)}
	for i, c := range p.Clients {
		if len(lines) == room-1 && i < len(p.Clients)-1 {
			return append(lines, fmt.Sprintf("and %d more", len(p.Clients)-i))
		}
		name := printable(c.Name)
		if c.Witness {
			name += "*"
		}
		line := fmt.Sprintf("%-*s  ", names, name) + coloured(c, fmt.Sprintf("%-*s", roles, role(c, p.State)))
		lines = append(lines, line+cells(c, left, gap, columns[:shown]))
	}
	return lines
}

// tableWidth returns the width of all columns, with a gap before each.
func tableWidth(gap int) (all int) {
	for _, c := range columns {
		all += gap + c.width
	}
	return all
}

// cells shows the columns of a client. During a transfer, a bar replaces all but the last column.
func cells(c testnet.ClientProgress, left, gap int, shown []column) string {
	text := ""
	last := len(shown) - 1
	for i, column := range shown {
		text += fmt.Sprintf("%*.*s", gap+column.width, gap+column.width, column.text(c))
		if i == last-1 && last == len(columns)-1 {
			left = lipgloss.Width(text)
		}
	}
	t := moving(c)
	if t.Total == 0 {
		return text
	}
	bars := movingBar(t, left-2)
	if last == len(columns)-1 {
		return "  " + bars + fmt.Sprintf("%*s", gap+shown[last].width, shown[last].text(c))
	}
	return "  " + bars
}

// moving returns a client's download, or else its upload; zero if there is neither.
func moving(c testnet.ClientProgress) event.Transfer {
	switch {
	case c.Down:
		return event.Transfer{}
	case c.Arrives.Total > 0:
		return c.Arrives
	}
	return c.Uploads
}

// movingBar draws a transfer with exactly the given width, so that the bars of all clients align.
func movingBar(t event.Transfer, width int) string {
	const percent, bytes, least = 6, 24, 5 // width of " 100 %"; width of "  999.9 MiB of 999.9 MiB"; minimum width of a bar
	text := fmt.Sprintf(" %3.0f %%", math.Floor(100*float64(t.Bytes)/float64(max(t.Total, 1))))
	each := width - percent
	if each >= bytes+least {
		text += fmt.Sprintf("  %s of %s", diskspace.Format(t.Bytes), diskspace.Format(t.Total))
		each -= bytes
	}
	drawn := filled(t, min(max(each, 3), 20)) + text
	return fmt.Sprintf("%-*s", width, ansi.Truncate(drawn, width, "…"))
}

// coloured highlights clients that are out of the run. The text alone contains this information
// too.
func coloured(c testnet.ClientProgress, text string) string {
	if c.Ejected || c.Down || c.GaveUp || c.Lost || c.Dropped {
		return bad.Render(text)
	}
	return text
}

// role describes what a client does, with exceptional states first.
func role(c testnet.ClientProgress, state event.State) string {
	trains := "trains"
	switch {
	case state.RunState == "Warmup" && c.Ready:
		trains = "holds the model"
	case state.RunState == "Warmup":
		trains = "waits for model"
	case c.Idle:
		trains = "audits"
	case c.Uncounted:
		trains = "not counted yet"
	case c.Attack != "" && state.RunState != "Cooldown":
		trains = "cheats: " + printable(c.Attack)
	}
	switch {
	case c.GaveUp:
		return "gave up"
	case c.Ejected && !c.Member:
		return "ejected"
	case c.Down:
		return "was killed"
	case c.Arrives.Total > 0:
		return does(c.Arrives)
	case c.Ended && c.Uploads.Total > 0:
		return "uploads"
	case c.Ended:
		return "has finished"
	case c.Lost:
		return "lost the model"
	case c.Uploads.Total > 0:
		return "trains, uploads"
	case c.Dropped:
		return "was dropped"
	case !c.Member:
		return "waits"
	}
	return trains
}
