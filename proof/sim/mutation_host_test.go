package sim

import (
	"time"

	"github.com/psyche-go/psyche/host/core"
)

// finishes has the host end a step in another order than write, publish, answer.
func finishes(how func(*host)) func() rules {
	return func() rules { return rules{finish: how} }
}

// heldBack is what a core wants to say.
type heldBack struct {
	host    *host
	updates []core.Update
	errors  []error
}

func (o *heldBack) Publish(u core.Update)   { o.updates = append(o.updates, u) }
func (o *heldBack) Answer(_ int, err error) { o.errors = append(o.errors, err) }

func (h *host) holdBack() *heldBack {
	held := &heldBack{host: h}
	h.Advance(h.now(), held)
	return held
}

func (o *heldBack) publish() {
	for _, u := range o.updates {
		o.host.Publish(u)
	}
}

func (o *heldBack) answer() {
	for i, err := range o.errors {
		o.host.Answer(i, err)
	}
}

func neverSync(h *host) {
	h.advance()
	h.goOn()
}

func answerEarly(h *host) {
	held := h.holdBack()
	held.answer()
	h.write(held.publish)
}

func publishEarly(h *host) {
	held := h.holdBack()
	held.publish()
	h.show()
	h.write(held.answer)
}

func answerFirst(h *host) {
	h.write(func() {
		held := h.holdBack()
		held.answer()
		held.publish()
	})
}

// graceOf has the host wait longer, or shorter, for a member that is gone.
func graceOf(d time.Duration) func() rules {
	return func() rules { return rules{times: func(t *core.Times) { t.WithdrawGrace, t.RestartGrace = d, d }} }
}
