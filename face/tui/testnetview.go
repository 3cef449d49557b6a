package tui

import (
	"fmt"
	"math"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/record/event"
)

// render draws everything into a screen of the model's size.
func (m testnetModel) render() string {
	if page, covers := m.cover(testnetManual); covers {
		return page
	}
	width, height := m.size()
	p, remarks := m.testnet.now()
	r := run{runID: p.RunID, name: p.Name, state: p.State, began: p.Began, since: p.Since, left: p.Left}
	top := r.head("psyche testnet", []string{fmt.Sprintf("epoch %d", p.State.Epoch)}, "  "+joined(p.State), width, m.at)
	if text := filling(p, width); text != "" {
		top = append(top, text)
	}
	return layout{
		top:      append(top, speed(p)),
		table:    clients(p),
		losses:   points(p.Losses),
		sections: [][]string{events(width, remarks), judged(p, width)},
		keys:     m.foot(testnetManual, &m.testnet.terminal),
	}.draw(width, height)
}

// filling shows the progress of the condition that ends the phase.
func filling(p testnet.Progress, width int) string {
	const words = 48 // width of the texts of both parts of a round, with their numbers
	each := min(max((width-words)/2, 3), 20)
	switch p.State.RunState {
	case waiting:
		return fmt.Sprintf("%d clients wait, %d begin an epoch %s", p.State.Pending, p.MinClients, bar(p.State.Pending, p.MinClients, each))
	case roundTrain, roundWitness:
		if width < words+6 {
			return fmt.Sprintf("%d/%d results %s  %d/%d witnesses %s", p.Results, p.State.Batches, bar(p.Results, p.State.Batches, each),
				p.State.Witnesses, p.State.Quorum, bar(p.State.Witnesses, p.State.Quorum, each))
		}
		return fmt.Sprintf("%d of %d results %s  %s", p.Results, p.State.Batches, bar(p.Results, p.State.Batches, each), quorum(p.State, each))
	}
	return quorum(p.State, each)
}

// speed shows the loss and the speed of the run, and the claims about the held-out loss.
func speed(p testnet.Progress) string {
	loss := "no loss yet"
	if newest := p.Newest(); newest.Step > 0 {
		loss = fmt.Sprintf("loss %.3f", newest.Loss)
	}
	held := p.State.HeldOut.String()
	if held != "" {
		held = "  " + printable(held)
	}
	return fmt.Sprintf("%s  %.0f tokens/s%s  %d tokens", loss, p.TokensRate, held, p.Tokens)
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
	return titled("audits and trials", width, lines)
}

// clients is the table of a network's clients.
func clients(p testnet.Progress) table {
	t := table{title: "client", columns: []column{{"loss", 6}, {"tokens/s", 8}, {"trains", 6}, {"sent", 9}, {"sends", 11}, {"restarts", 8}}}
	for _, c := range p.Clients {
		t.rows = append(t.rows, row{
			name: printable(c.Name), witness: c.Witness, role: role(c, p.State), out: c.Ejected || c.Down || c.GaveUp || c.Lost || c.Dropped, moving: moving(c),
			cells: []string{
				known(c.LossStep > 0, "%.3f", c.Loss), known(c.Speed > 0, "%.0f", c.Speed), known(c.Share > 0, "%.0f %%", 100*c.Share),
				diskspace.Format(c.Sent), diskspace.Format(c.SentRate) + "/s", fmt.Sprint(c.Restarts),
			},
		})
	}
	return t
}

// known formats a number, if it is known.
func known(is bool, format string, value float64) string {
	if !is {
		return "-"
	}
	return fmt.Sprintf(format, value)
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

// role describes what a client does, with exceptional states first.
func role(c testnet.ClientProgress, state event.State) string {
	trains := "trains"
	switch {
	case state.RunState == warmup && c.Ready:
		trains = "holds the model"
	case state.RunState == warmup:
		trains = "waits for model"
	case c.Idle:
		trains = "audits"
	case c.Uncounted:
		trains = "not counted yet"
	case c.Attack != "" && state.RunState != cooldown:
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
