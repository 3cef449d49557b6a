package solana

import (
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Pauses between attempts to listen to an endpoint.
const (
	firstListenPause = 500 * time.Millisecond
	longListenPause  = 15 * time.Second
)

// listen subscribes to an endpoint's notices of transactions that name the run. A notice only makes
// the client look sooner, because it is not compared with other endpoints.
func (c *Client) listen(endpoint int) {
	e := c.pool.Endpoints()[endpoint]
	wait, warned := firstListenPause, false
	for c.ctx.Err() == nil {
		ready := func() {
			wait = firstListenPause
			if warned {
				warned = false
				c.logger.Info("listening to the endpoint again", "endpoint", e.Name())
			}
			poke(c.wake) // there may have been changes before the subscription
		}
		err := e.ListenLogs(c.ctx, c.run, rpc.Confirmed, ready, func(notice rpc.LogsNotice) { c.hear(endpoint, notice) })
		if c.ctx.Err() != nil {
			return
		}
		if !warned {
			warned = true
			c.logger.Warn("cannot subscribe to an endpoint; polling it instead", "error", err)
		}
		_ = pause.For(c.ctx, wait)
		wait = min(2*wait, longListenPause)
	}
}

// hear processes a notice.
func (c *Client) hear(endpoint int, logs rpc.LogsNotice) {
	if logs.Err != nil {
		return // a failed transaction changes nothing
	}
	entries, complete := rpc.ProgramData(logs.Logs, transaction.PublicKey(c.program))
	o := observation{endpoint: endpoint, unclear: !complete || len(entries) == 0}
	for _, entry := range entries {
		e, err := event.Decode(entry)
		if err != nil {
			o.unclear = true
			continue
		}
		o.hint = &claim{e.Sequence, e.Head}
	}
	c.tell(o)
}
