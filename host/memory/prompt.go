package memory

import (
	"cmp"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/wire"
)

// Prompt is a host's core that waits for no disk: what it does is published and answered at once.
type Prompt struct {
	*core.Host
	// Keep, which may be nil, gets every record of the log; Show every publication.
	Keep func(core.Record)
	Show func(core.Update)

	answer error // to what was submitted last
}

// Submit applies an action whose signature is verified, and what is due after it, and returns why it was
// refused.
func (p *Prompt) Submit(now core.Now, a wire.SignedAction, from core.Origin) error {
	p.Host.Submit(now, a, from)
	return cmp.Or(p.settle(now), p.answer)
}

// Act applies an action of the host's own, and returns why it was refused.
func (p *Prompt) Act(now core.Now, a coordinator.Action) error {
	refused := p.Host.Act(now, a)
	return cmp.Or(refused, p.settle(now))
}

// Tick does what is due. After an error the host can do nothing more.
func (p *Prompt) Tick(now core.Now) error {
	p.Host.Tick(now)
	return p.settle(now)
}

// settle publishes and answers.
func (p *Prompt) settle(now core.Now) error {
	records, err := p.Ready()
	if err != nil {
		return err
	}
	for _, r := range records {
		if p.Keep != nil {
			p.Keep(r)
		}
	}
	p.answer = nil
	p.Advance(now, p)
	return nil
}

// Publish implements core.Outlet.
func (p *Prompt) Publish(u core.Update) { p.Show(u) }

// Answer implements core.Outlet.
func (p *Prompt) Answer(_ int, err error) { p.answer = err }
