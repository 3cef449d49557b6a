package testnet

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Lines is a display with one line per change of phase, for logs and pipes.
type Lines struct {
	mu      sync.Mutex
	out     io.Writer
	heldOut uint32 // step of the checkpoint whose held-out loss was written last
}

// NewLines returns a display that writes to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Update implements Display.
func (l *Lines) Update(p Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, note := range p.Notes {
		fmt.Fprintf(l.out, "  * %s\n", note)
	}
	if !p.Changed {
		return
	}
	if held := p.State.HeldOut; held != nil && held.Step > l.heldOut && p.State.RunState != coordinator.Cooldown.String() { // members claim it during Cooldown
		l.heldOut = held.Step
		fmt.Fprintf(l.out, "epoch %d  %s\n", p.State.Epoch, held)
	}
	var witnesses []string
	members, sent := 0, uint64(0)
	for _, client := range p.Clients {
		sent += client.Sent
		if client.Witness {
			witnesses = append(witnesses, strings.TrimPrefix(client.Name, "client-"))
		}
		if client.Member {
			members++
		}
	}
	switch p.State.RunState {
	case coordinator.RoundTrain.String():
	case coordinator.WaitingForMembers.String():
		fmt.Fprintf(l.out, "epoch %d  %s: %d of %d clients have joined\n", p.State.Epoch, p.State.RunState, p.State.Pending, len(p.Clients))
		return
	case coordinator.RoundWitness.String():
		return // it follows every round
	default:
		fmt.Fprintf(l.out, "epoch %d  %s: %d of %d clients are members\n", p.State.Epoch, p.State.RunState, members, len(p.Clients))
		return
	}
	loss := "     -"
	if newest := p.Newest(); newest.Step > 0 {
		loss = fmt.Sprintf("%6.3f", newest.Loss)
	}
	left := "-"
	if p.Left > 0 {
		left = "about " + p.Left.Round(time.Second).String()
	}
	fmt.Fprintf(l.out, "round %3d/%d  loss %s  %6.0f tokens/s  left %s  sent by all %s  witnesses %s\n",
		p.State.Step, p.State.TotalSteps, loss, p.TokensRate, left, diskspace.Format(sent), strings.Join(witnesses, ","))
}

// Close implements Display.
func (l *Lines) Close() {}
