package core

import (
	"cmp"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Prompt is a Host that waits for no disk: what it does is published and answered at once.
type Prompt struct {
	*Host
	// Keep, which may be nil, gets every record of the log; Show every publication.
	Keep func(Record)
	Show func(Update)

	answer error // to what was submitted last
}

// Submit applies an action whose signature is verified, and what is due after it, and returns why it was
// refused.
func (p *Prompt) Submit(now Now, a wire.SignedAction, from Origin) error {
	p.Host.Submit(now, a, from)
	_, err := p.settle(now)
	return cmp.Or(err, p.answer)
}

// Act applies an action of the host's own, and returns why it was refused.
func (p *Prompt) Act(now Now, a coordinator.Action) error {
	refused := p.Host.Act(now, a)
	_, err := p.settle(now)
	return cmp.Or(refused, err)
}

// Tick does what is due, and reports whether anything was. After an error the host can do nothing more.
func (p *Prompt) Tick(now Now) (changed bool, err error) {
	p.Host.Tick(now)
	return p.settle(now)
}

// settle publishes and answers.
func (p *Prompt) settle(now Now) (changed bool, err error) {
	records, err := p.Ready()
	if err != nil {
		return false, err
	}
	for _, r := range records {
		if p.Keep != nil {
			p.Keep(r)
		}
	}
	p.answer = nil
	p.Advance(now, p)
	return len(records) > 0, nil
}

// Publish implements Outlet.
func (p *Prompt) Publish(u Update) { p.Show(u) }

// Answer implements Outlet.
func (p *Prompt) Answer(_ int, err error) { p.answer = err }
