package server

import (
	"cmp"
	"context"
	"time"

	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
)

const (
	memberReads = 8        // concurrent batch reads for members; each needs about 1 MiB
	otherReads  = 4        // concurrent batch reads for other clients
	maxHeld     = 512      // batches of other clients in memory
	batchSize   = 32 << 10 // a batch is sent once it has this many bytes
	// memberAdvance is the number of bytes that a member's first batch takes from the budget in
	// advance.
	memberAdvance = 4 << 10
	// leastCost is the minimum number of bytes that a frame of records for other clients takes from the
	// budget. Records that resemble each other compress well, but packing them costs time too.
	leastCost = maxDiskRecords / 8
	// crowdedTimeout is the time in which a client must receive 16 KiB of a batch while other clients
	// wait for memory. Members always have frame.WriteTimeout.
	crowdedTimeout = 2 * time.Second
)

// catching shares access to the journals between connections that catch up. A connection holds a
// turn while it reads a batch of frames, but not while it sends the batch. Members do not share
// turns with other clients.
type catching struct {
	members, others *admission.Turns
	held            *admission.Turns // batches of other clients, from the read until the client has received them
}

func newCatching() catching {
	return catching{admission.NewTurns(memberReads), admission.NewTurns(otherReads), admission.NewTurns(maxHeld)}
}

// favored reports whether the client has priority over unknown clients: it takes part in the run or
// administers it.
func (c *connection) favored() bool {
	newest := c.host.newest.Load()
	if c.role == frame.RoleObserver {
		return newest.roleKeys[c.id]
	}
	return newest.known[c.id]
}

// takeEgress waits until the connection may send n bytes of journals and models.
func (c *connection) takeEgress(ctx context.Context, n int) error {
	n = min(n, maxLogFrame)
	if c.favored() {
		return c.server.egress.TakeFirst(ctx, c.conn.RemoteAddr(), n)
	}
	return c.server.egress.Take(ctx, c.conn.RemoteAddr(), n)
}

// readFollow starts to send the records that the client does not have.
func (c *connection) readFollow(ctx context.Context, payload []byte) error {
	wanted, err := frame.DecodeFollow(payload)
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if c.follows {
		return refuse(frame.RefusedMalformed, "the connection already follows the log")
	}
	c.follows = true
	if size := c.host.newest.Load().log.index; wanted.Index > size {
		return refuse(frame.RefusedPlace, "the log of run %q has %d records, but the client has %d", c.host.runID, size, wanted.Index)
	}
	c.startCatchUp(ctx, wanted.Index, wanted.Index == 1)
	return nil
}

// startCatchUp starts a goroutine of converse that sends the records after index. Afterwards the
// client gets new records as they arrive. A newcomer gets certificates instead of old records if
// there are any.
func (c *connection) startCatchUp(ctx context.Context, index uint64, newcomer bool) {
	c.working.Go(func() {
		if err := c.catchUp(ctx, index, newcomer); err != nil {
			c.hangUp(err)
		}
	})
}

func (c *connection) catchUp(ctx context.Context, index uint64, newcomer bool) error {
	out := batch{c: c, ctx: ctx}
	defer out.end()
	if err := out.begin(); err != nil {
		return err
	}
	log := c.host.newest.Load().log
	log.pushes = nil // a slow client would keep them in memory
	var err error
	if newcomer {
		links, base := c.host.certs.way()
		err = log.readCertified(c.host.store.journal, links, base, out.add)
	} else {
		err = log.read(c.host.store.journal, index, out.add)
	}
	if err != nil {
		return err
	}
	return out.flush(log.index)
}

// batch collects frames that one connection reads from the journal.
type batch struct {
	c      *connection
	ctx    context.Context
	frames []byte

	owed    int              // bytes not yet taken from the budget
	reading *admission.Turns // the batch's turn; nil: none
	held    bool             // the batch counts in catching.held
}

// begin waits for a turn to read. Before that, it waits for the budget, so that a connection uses no
// memory while it waits. The size of the batch is not known at that time. Therefore each batch takes
// the bytes of the previous batch from the budget, and the first batch takes an advance. The advance
// of a member is small, because a member may need only a few records.
func (b *batch) begin() error {
	t, remote, favored := &b.c.server.catching, b.c.conn.RemoteAddr(), b.c.favored()
	advance := batchSize
	if favored {
		advance = memberAdvance
	}
	if err := b.c.takeEgress(b.ctx, cmp.Or(b.owed, advance)); err != nil {
		return err
	}
	b.owed = 0
	turns := t.members
	if !favored {
		if err := t.held.Wait(b.ctx, remote); err != nil {
			return err
		}
		b.held, turns = true, t.others
	}
	if err := turns.Wait(b.ctx, remote); err != nil {
		return err
	}
	b.reading = turns
	return nil
}

// add adds a frame. If the batch is full, add returns after the client has received it and the next
// turn to read has come.
func (b *batch) add(kind frame.Type, payload []byte) error {
	if kind == frame.TypeBase { // long, and all connections share the bytes
		if err := b.flush(0); err != nil {
			return err
		}
		b.end()
		if err := b.send(answer{frames: [][]byte{frame.AppendHead(nil, kind, len(payload)), payload}}); err != nil {
			return err
		}
		return b.begin()
	}
	b.frames = frame.Append(b.frames, kind, payload)
	if kind == frame.TypeRecords && b.held {
		b.owed += max(0, leastCost-len(payload))
	}
	if len(b.frames) < batchSize {
		return nil
	}
	return b.flush(0)
}

// flush gives the batch to the writer. If live is not zero, this is the last batch: after it, the
// client has the first live records of the log, and gets new records as they arrive.
func (b *batch) flush(live uint64) error {
	frames := b.frames
	b.frames = nil
	b.stopReading()
	if err := b.send(answer{frames: [][]byte{frames}, live: live, yields: b.held}); err != nil || live > 0 {
		return err
	}
	b.stopHolding()
	return b.begin()
}

// send returns after the client has received the frames.
func (b *batch) send(a answer) error {
	size := 0
	for _, f := range a.frames {
		size += len(f)
	}
	b.owed += size
	b.c.countPush("log", "whole", size)
	sent := make(chan struct{})
	a.sent = sent
	if err := b.c.answer(b.ctx, a); err != nil {
		return err
	}
	select {
	case <-sent:
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

func (b *batch) stopReading() {
	if b.reading != nil {
		b.reading.Done()
		b.reading = nil
	}
}

func (b *batch) stopHolding() {
	if b.held {
		b.c.server.catching.held.Done()
		b.held = false
	}
}

// end releases the turns of the batch.
func (b *batch) end() {
	b.stopReading()
	b.stopHolding()
}

// sendLog sends a live client the records that it does not have yet.
func (c *connection) sendLog(ctx context.Context, log *logStream) error {
	if c.sent == 0 || c.sent == log.index {
		return nil
	}
	pushes, ok := log.since(c.sent)
	if !ok {
		from := c.sent
		c.sent = 0
		c.startCatchUp(ctx, from, false)
		return nil
	}
	for _, p := range pushes {
		c.countPush("log", "delta", len(p.frame))
		if err := c.writeBytes(ctx, p.frame); err != nil {
			return err
		}
		c.sent = p.to
	}
	return nil
}

func (c *connection) countPush(feed, how string, bytes int) {
	c.server.metrics.pushes.WithLabelValues(feed, how).Inc()
	c.server.metrics.pushedBytes.WithLabelValues(feed, how).Add(float64(bytes))
}
