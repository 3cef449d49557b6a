package tui

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/record/event"
)

var localIDs = []string{"83JJ1FKjQv", "7ZLpJgvnAb", "2VnaQYyoCd", "9aBcDeFgHi", "4kLmNoPqRs", "5tUvWxYzAb", "6cDeFgHiJk"}

// network returns a local network of n clients, after 40 rounds.
func network(clients int) *Testnet {
	p := testnet.Progress{
		RunID: "quickstart", Name: "The quick brown fox", Began: begun.Add(-90 * time.Second), Since: begun, Left: 150 * time.Second, MinClients: 3, Results: clients - 1, Tokens: 245_760, TokensRate: 7513,
		State: event.State{
			RunState: "RoundTrain", Step: 40, Epoch: 1, Members: localIDs[:clients], Elected: localIDs[:2], Witnesses: 1, Quorum: 2,
			Pending: 1, TotalSteps: 100, Limit: 30, Batches: clients,
		},
	}
	for step := uint32(1); step < 40; step++ {
		loss := 2.6 + 3*math.Exp(-float64(step)/10)
		if step == 7 {
			loss = math.NaN() // nothing to draw
		}
		p.Losses = append(p.Losses, testnet.RoundLoss{Step: step, Loss: loss, Tokens: 6144})
	}
	for i, id := range localIDs[:clients] {
		p.Clients = append(p.Clients, testnet.ClientProgress{
			Name: fmt.Sprintf("client-%d", i+1), ID: id, Member: true, Witness: i < 2, Ready: true, Loss: 2.6 + float64(i)/8, LossStep: 40,
			Speed: 2900, Share: 0.917, Sent: uint64(i+1) * 300_000, SentRate: 60_000,
		})
	}
	p.Clients[1].Restarts = 2
	d := &Testnet{}
	d.Update(p)
	return d
}

// troubled returns a network of seven clients with every kind of event.
func troubled() *Testnet {
	d := network(7)
	p := d.newest
	c := p.Clients
	c[1].Idle, p.Audits = true, map[string]int{"passed": 41, "unclear": 1}
	c[2] = testnet.ClientProgress{
		Name: "client-3", Restarts: 1, SentRate: 3, LossStep: 31, Loss: 2.7,
		Arrives: event.Transfer{What: event.TransferModel, Step: 39, Bytes: 100 << 20, Total: 400 << 20},
	}
	c[3].Uploads = event.Transfer{What: event.TransferUpload, Step: 25, Bytes: 3 << 20, Total: 9 << 20}
	c[4].Member, c[4].Ejected, c[4].Dropped = false, true, true
	c[5].Down, c[5].Dropped, c[5].Restarts = true, true, 3
	c[6].Uncounted = true
	p.State.Members = localIDs[:4]
	p.State.HeldOut = &event.HeldOut{Step: 32, Loss: event.Claims{Count: 3, Median: 2.468, Spread: 0.01}}
	p.Trials, p.Ejected = trials.Open[:2], ejected[2:]
	p.Notes = []string{"client-6 killed in round 12", "client-6 restarted", "client-3 killed", "client-3 restarted", "client-5 is ejected until epoch 5: a jury found it \x1b[31mguilty; guilty: client-1, client-2, client-3; 10.4 s and 9 rounds after its first false result", "client-6 killed"}
	d.Update(p)
	for i := range d.remarks {
		d.remarks[i].At = begun.Add(time.Duration(i) * time.Second)
	}
	return d
}

func (t *Testnet) screen(width, height int) string {
	return testnetModel{testnet: t, frame: frame{width: width, height: height, at: begun.Add(7 * time.Second)}}.View().Content
}

// TestTestnetScreens compares pictures of networks with reviewed pictures.
func TestTestnetScreens(t *testing.T) {
	begins := &Testnet{}
	begins.Update(testnet.Progress{RunID: "quickstart", MinClients: 3, State: event.State{TotalSteps: 100}, Clients: make([]testnet.ClientProgress, 3), Notes: nil})
	waits := network(3)
	waits.newest.State.RunState, waits.newest.State.Members, waits.newest.State.Pending = "WaitingForMembers", nil, 2
	for i := range waits.newest.Clients {
		waits.newest.Clients[i].Member, waits.newest.Clients[i].Witness = false, false
	}
	loads := network(3)
	loads.newest.State.RunState, loads.newest.State.Ready = "Warmup", 2
	loads.newest.Clients[2].Ready = false
	loads.newest.Clients[2].Arrives = event.Transfer{What: event.TransferDownload, Bytes: 3 << 30, Total: 4 << 30}
	for name, screen := range map[string]string{
		"testnet-80x24": network(3).screen(80, 24), "testnet-seven-80x24": troubled().screen(80, 24),
		"testnet-40x10": network(3).screen(40, 10), "testnet-seven-40x10": troubled().screen(40, 10),
		"testnet-seven-60x16": troubled().screen(60, 16), "testnet-seven-120x40": troubled().screen(120, 40),
		"testnet-begins-80x24": begins.screen(80, 24), "testnet-waits-80x24": waits.screen(80, 24), "testnet-loads-80x24": loads.screen(80, 24),
	} {
		golden.Compare(t, name+".txt", ansi.Strip(screen)+"\n")
	}
}

// TestTestnetScreensFit checks that no screen is larger than its terminal, whatever happens, and
// that no received text moves the cursor.
func TestTestnetScreensFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Testnet{}
		p := testnet.Progress{RunID: rapid.String().Draw(t, "run"), Since: begun, Results: rapid.IntRange(0, 300).Draw(t, "results")}
		p.State = event.State{
			RunState: rapid.SampledFrom([]string{"", "WaitingForMembers", "Warmup", "RoundTrain", "RoundWitness", "Cooldown", "Finished", "Paused"}).Draw(t, "state"),
			Step:     rapid.Uint32().Draw(t, "step"), TotalSteps: rapid.Uint32().Draw(t, "steps"), Witnesses: 3, Quorum: rapid.IntRange(0, 200).Draw(t, "quorum"),
		}
		for i := range rapid.IntRange(0, 40).Draw(t, "clients") {
			p.Clients = append(p.Clients, testnet.ClientProgress{
				Name: fmt.Sprintf("client-%d", i+1), Member: rapid.Bool().Draw(t, "member"), Idle: rapid.Bool().Draw(t, "idle"),
				Loss: rapid.Float64().Draw(t, "loss"), LossStep: 1, Speed: rapid.Float64().Draw(t, "speed"), Share: 1, Sent: rapid.Uint64().Draw(t, "sent"), SentRate: rapid.Float64().Draw(t, "rate"),
				Arrives: event.Transfer{Bytes: rapid.Uint64().Draw(t, "bytes"), Total: rapid.Uint64().Draw(t, "total")}, Restarts: rapid.Int().Draw(t, "restarts"),
			})
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "losses") {
			p.Losses = append(p.Losses, testnet.RoundLoss{Step: uint32(i + 1), Loss: rapid.Float64().Draw(t, "loss")})
		}
		p.Notes = rapid.SliceOfN(rapid.String(), 0, 9).Draw(t, "notes")
		if rapid.Bool().Draw(t, "court") {
			p.Trials, p.Ejected = trials.Open, ejected
		}
		d.Update(p)
		width, height := rapid.IntRange(1, 250).Draw(t, "width"), rapid.IntRange(1, 80).Draw(t, "height")
		lines := strings.Split(d.screen(width, height), "\n")
		if len(lines) > max(height, minHeight) {
			t.Fatalf("%d lines on %d", len(lines), height)
		}
		for _, line := range lines {
			if w := lipgloss.Width(line); w > max(width, minWidth) || strings.ContainsAny(ansi.Strip(line), "\x1b\r\t\a") {
				t.Fatalf("%d columns on %d: %q", w, width, line)
			}
		}
	})
}

// TestTestnetRoles checks that an unusual state of a client has precedence over the states that
// follow from it.
func TestTestnetRoles(t *testing.T) {
	model := event.Transfer{What: event.TransferModel, Bytes: 1, Total: 2}
	upload := event.Transfer{What: event.TransferUpload, Bytes: 1, Total: 2}
	for want, c := range map[string]testnet.ClientProgress{
		"trains": {Member: true, Witness: true}, "waits": {}, "was dropped": {Dropped: true}, "audits": {Member: true, Idle: true, Uncounted: true}, "cheats: copy": {Member: true, Attack: "copy"},
		"not counted yet": {Member: true, Uncounted: true}, "ejected": {Ejected: true, Dropped: true, Down: true}, "was killed": {Member: true, Down: true, Arrives: model},
		"gets the model": {Member: true, Arrives: model}, "trains, uploads": {Member: true, Uploads: upload}, "uploads": {Ended: true, Uploads: upload},
		"lost the model": {Lost: true, Dropped: true}, "has finished": {Ended: true}, "gave up": {GaveUp: true, Dropped: true},
	} {
		if got := role(c, event.State{RunState: "RoundTrain"}); got != want {
			t.Errorf("role of %+v: %q, want %q", c, got, want)
		}
	}
}

func TestTestnetModel(t *testing.T) {
	interrupted := 0
	d := network(3)
	d.signal = func() { interrupted++ }
	var m tea.Model = testnetModel{testnet: d, frame: newFrame()}
	for _, message := range []tea.Msg{tea.WindowSizeMsg{Width: 100, Height: 30}, tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}, tickMsg(begun), nil} {
		m, _ = m.Update(message)
	}
	if got := m.(testnetModel); got.width != 100 || got.height != 30 || !got.at.Equal(begun) || interrupted != 1 || !m.View().AltScreen {
		t.Errorf("%+v, interrupted %d times", got, interrupted)
	}
}

// TestTestnetLeavesRemarks checks that the events are printed to the terminal once after the user
// closes the display.
func TestTestnetLeavesRemarks(t *testing.T) {
	var out bytes.Buffer
	d := &Testnet{out: &out}
	for i := range remarksKept + 1 {
		d.Update(testnet.Progress{Notes: []string{fmt.Sprintf("remark %d\x1b[31m", i)}})
	}
	d.Close()
	d.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != remarksKept || !strings.HasSuffix(lines[0], " remark 1?[31m") || !strings.HasSuffix(lines[remarksKept-1], " remark 50?[31m") {
		t.Errorf("left %q", lines)
	}
}
