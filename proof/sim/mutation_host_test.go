package sim

import (
	"time"

	"github.com/psyche-go/psyche/host/core"
)

// finishes makes the host end a step in an order other than write, publish, answer.
func finishes(how func(*host)) func() rules {
	return func() rules { return rules{finish: how} }
}

// answerOnly has the core answer, and returns a function that publishes the updates that should
// have been published before the answer.
func answerOnly(h *host) (publish func()) {
	var held []core.Update
	h.Advance(h.now(), func(u core.Update) { held = append(held, u) })
	h.waiting = nil
	return func() {
		for _, u := range held {
			h.publish(u)
		}
	}
}

func neverSync(h *host) {
	h.advance()
	h.goOn()
}

func answerEarly(h *host) { h.write(answerOnly(h)) }

func publishEarly(h *host) {
	h.publish(core.Update{State: h.State(), Changed: true, Participants: h.Participants()})
	h.show()
	h.write(h.advance)
}

func answerFirst(h *host) {
	h.write(func() { answerOnly(h)() })
}

// graceOf changes the time for which the host waits for a disconnected member.
func graceOf(d time.Duration) func() rules {
	return func() rules { return rules{times: func(t *core.Times) { t.WithdrawGrace, t.RestartGrace = d, d }} }
}
