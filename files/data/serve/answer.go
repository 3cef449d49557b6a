package serve

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote/message"
)

// answer grants a request or denies it. It returns an error if the connection has to end.
func (c *connection) answer(ctx context.Context, request message.Request) error {
	begun := time.Now()
	kind := "samples"
	if request.Kind == message.Fingerprint {
		kind = "fingerprint"
	}
	granted, err := c.await(ctx, func() decision { return c.server.run.grant(coordinator.ClientID(c.id), request) })
	bytes := 0
	if err == nil {
		bytes, err = c.deliver(ctx, request, granted.others)
	}
	if err == nil {
		if c.server.reported.Of(c.id).Allow() {
			c.server.tell(Answer{To: c.id, Kind: kind, Batch: request.Sequences[0], Bytes: bytes, Took: time.Since(begun)})
		}
		c.server.metrics.requests.WithLabelValues(kind, "served").Inc()
		c.server.metrics.seconds.Observe(time.Since(begun).Seconds())
		return nil
	}
	c.server.metrics.requests.WithLabelValues(kind, resultOf(err)).Inc()
	refused, ok := errors.AsType[*message.Error](err)
	if !ok || !c.conn.Whole() {
		return err
	}
	if c.server.noise.Allow() {
		c.logger.Warn("denied a request", "kind", kind, "sequences", request.Sequences, "reason", refused.Reason)
		c.server.tell(Answer{To: c.id, Kind: kind, Batch: request.Sequences[0], Took: time.Since(begun), Denied: refused.Reason})
	}
	return c.send(message.TypeDenied, message.Denied{Number: request.Number, Refusal: message.Refusal(*refused)}.AppendTo(nil))
}

// tell passes an answer to Options.Answered.
func (s *Server) tell(a Answer) {
	if s.options.Answered != nil {
		s.options.Answered(a)
	}
}

// longestWay limits how long each piece of a batch for an audit, or a fingerprint, waits while members are getting
// their own batches.
const longestWay = time.Second

// deliver sends the requested data, piece by piece, and returns the number of bytes. others means
// that the request is not for the member's own batch, so other requests have priority.
func (c *connection) deliver(ctx context.Context, request message.Request, others bool) (sent int, err error) {
	if !others {
		defer c.server.turns.enter()()
	}
	hash := data.NewHash()
	for piece := range pieces(request.Sequences, max(1, pieceTokens/uint64(c.server.options.SeqLen+1))) {
		if others {
			c.server.turns.yield(ctx, longestWay)
		}
		batch, err := c.server.read(ctx, piece, others)
		if err != nil {
			return sent, err
		}
		if request.Kind == message.Fingerprint {
			return sent, c.send(message.TypeFingerprint, message.Hash{Number: request.Number, Hash: data.Fingerprint(batch, 0)}.AppendTo(nil))
		}
		hash.Add(batch)
		bytes, err := c.sendPiece(ctx, request.Number, batch)
		sent += bytes
		if err != nil {
			return sent, err
		}
	}
	receipt := data.SignReceipt(c.server.options.Key, c.server.run.name(), request.Sequences, hash.Sum())
	return sent, c.send(message.TypeReceipt, message.Receipt{Number: request.Number, Hash: receipt.Hash, Signature: receipt.Signature}.AppendTo(nil))
}

// pieces divides intervals into pieces of at most a number of sequences.
func pieces(intervals []assign.BatchID, most uint64) iter.Seq[assign.BatchID] {
	return func(yield func(assign.BatchID) bool) {
		for _, interval := range intervals {
			for start := interval.Start; start < interval.End; {
				end := start + min(most, interval.End-start)
				if !yield(assign.BatchID{Start: start, End: end}) {
					return
				}
				start = end
			}
		}
	}
}

// sendPiece sends a part of a batch, and returns its number of bytes.
func (c *connection) sendPiece(ctx context.Context, number uint32, batch data.Batch) (sent int, err error) {
	for i, sequence := range batch.Sequences {
		s := message.Sample{Number: number, Index: batch.ID.Start + uint64(i), Tokens: sequence}
		if batch.Labels != nil {
			s.Labels = batch.Labels[i]
		}
		if batch.Positions != nil {
			s.Positions = batch.Positions[i]
		}
		payload := s.AppendTo(nil)
		if err := c.put(message.TypeSample, payload); err != nil {
			return sent, err
		}
		sent += len(payload)
		c.server.metrics.bytes.Add(float64(len(payload)))
	}
	c.server.metrics.sequences.Add(float64(len(batch.Sequences)))
	return sent, c.writer.Flush()
}

// read reads from the source for a limited number of clients at a time. The limit is lower for audits and
// fingerprints.
func (s *Server) read(ctx context.Context, id assign.BatchID, others bool) (data.Batch, error) {
	if others {
		select {
		case s.audits <- struct{}{}:
			defer func() { <-s.audits }()
		case <-ctx.Done():
			return data.Batch{}, context.Cause(ctx)
		}
	}
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	case <-ctx.Done():
		return data.Batch{}, context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, s.options.ReadTimeout)
	defer cancel()
	batch, err := s.options.Source.Batch(bounded, id)
	if ctx.Err() != nil {
		return data.Batch{}, context.Cause(ctx)
	}
	s.mu.Lock()
	s.broken = err != nil
	s.mu.Unlock()
	switch {
	case err == nil:
		return batch, nil
	case data.IsPermanent(err):
		s.logger.Error("invalid data", "batch", id, "err", err)
		return data.Batch{}, refuse(message.BadData, "the server's data is invalid; ask its operator")
	default:
		s.logger.Error("cannot read the data", "batch", id, "err", err)
		return data.Batch{}, refuse(message.Unavailable, "the server cannot read its data now; ask its operator")
	}
}
