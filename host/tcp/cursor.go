package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// logCursor is a client's position in a run's log, across all its connections. It is not safe for
// concurrent use.
type logCursor struct {
	log    *follow.Follower
	host   identity.ID
	starts []wire.Head         // signed heads at the starts of the newest rounds, oldest first
	newest wire.Head           // newest signed head; zero before the first
	window []byte              // compression window of the connection
	signed bool                // the host signed a head of this log
	cert   *follow.Certificate // newest certificate of an epoch after the state of log; nil if there is none
}

// beginLog returns a logCursor at the genesis of a run.
func beginLog(g follow.Genesis) (*logCursor, error) {
	log, err := follow.Begin(g)
	if err != nil {
		return nil, err
	}
	return &logCursor{log: log, host: identity.ID(log.State.Host)}, nil
}

// connect prepares for a new connection. If the client was between certificates, it starts again
// from the genesis.
func (l *logCursor) connect() {
	l.window, l.cert = nil, nil
	if l.newest.Index == 0 {
		if log, err := follow.Begin(l.log.Genesis()); err == nil { // cannot fail: it succeeded before
			l.log = log
		}
	}
}

// take processes records. It returns a *follow.HostFault if an honest host cannot have sent them.
func (l *logCursor) take(payload []byte) error {
	records, err := frame.DecodeRecords(payload, l.window)
	if err != nil {
		return err
	}
	if at := l.log.Head().Index; records.First != at {
		return fmt.Errorf("%w: records after %d, want records after %d", frame.ErrMalformed, records.First, at)
	}
	l.window = frame.Slide(l.window, records.Raw)
	var applied [][]byte
	err = records.Each(func(record []byte) error {
		if len(record) > follow.MaxRecord {
			return fmt.Errorf("%w: a record of %d bytes", frame.ErrMalformed, len(record))
		}
		applied = append(applied, record)
		l.signed = false
		if _, err := l.log.Apply(record); err != nil {
			return l.fault(err.Error(), records, applied)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, h := range records.Heads {
		if err := l.check(h, records, applied); err != nil {
			return err
		}
	}
	return nil
}

// pass processes the certificate of a later epoch, signed by members of the newest known epoch.
func (l *logCursor) pass(payload []byte) error {
	c, err := follow.DecodeCertificate(bytes.Clone(payload))
	if err != nil {
		return err
	}
	from := l.log.Epoch()
	if l.cert != nil {
		from = l.cert.Epoch
	}
	if c.Index <= from.Index {
		return fmt.Errorf("%w: epoch %d is not later than epoch %d", follow.ErrCertificate, c.Number, from.Number)
	}
	if err := c.Check(l.log.Run(), from.Members); err != nil {
		return err
	}
	l.cert = &c
	return nil
}

// begin continues from the state of the newest certificate.
func (l *logCursor) begin(payload []byte) error {
	if l.cert == nil || l.newest.Index > 0 {
		return fmt.Errorf("%w: a state without a certificate", frame.ErrMalformed)
	}
	log, err := follow.ResumeAt(l.log.Genesis(), *l.cert, payload)
	if err != nil {
		return err
	}
	l.log, l.cert, l.window = log, nil, nil
	return nil
}

// check compares a head with the history that the client has followed.
func (l *logCursor) check(h wire.Head, records frame.Records, applied [][]byte) error {
	if !h.Verify(l.host, l.log.Run()) {
		return fmt.Errorf("%w: the host did not sign the head of record %d", frame.ErrMalformed, h.Index)
	}
	for _, known := range append(slices.Clone(l.starts), l.newest) {
		if known.Index > 0 && h.Contradicts(known) {
			return l.fault(fmt.Sprintf("it signed two different heads of record %d, or of the start of step %d", h.Index, h.Step), records, applied)
		}
	}
	own := l.log.Head()
	if h.Index != own.Index {
		i := slices.IndexFunc(l.log.Starts(), func(s wire.Head) bool { return s.Index == h.Index })
		if i < 0 {
			return nil // of an old round, or of a round that the client did not follow
		}
		own = l.log.Starts()[i]
	}
	if !h.Same(own) {
		return l.fault(fmt.Sprintf("it signed a head of record %d that differs from the records that it sent", h.Index), records, applied)
	}
	if h.Step != 0 {
		l.starts = slices.DeleteFunc(l.starts, func(s wire.Head) bool { return !slices.ContainsFunc(l.log.Starts(), s.Same) })
		if !slices.ContainsFunc(l.starts, h.Same) {
			l.starts = append(l.starts, h)
		}
	}
	if h.Index == l.log.Head().Index {
		l.newest, l.signed = h, true
	}
	return nil
}

// fault returns the proof that the records contain.
func (l *logCursor) fault(reason string, records frame.Records, applied [][]byte) *follow.HostFault {
	e := follow.Evidence{Genesis: l.log.Genesis().Raw, Heads: slices.Clone(l.starts), Index: records.First}
	if l.newest.Index > 0 {
		e.Heads = append(e.Heads, l.newest)
	}
	e.Heads = append(e.Heads, records.Heads...)
	for _, record := range applied {
		e.Records = append(e.Records, bytes.Clone(record))
	}
	return &follow.HostFault{Reason: reason, Evidence: e}
}

// faultBehind returns the *follow.HostFault that ended a connection, or nil if the connection ended for
// another reason.
func (l *logCursor) faultBehind(err error) error {
	if fault, ok := errors.AsType[*follow.HostFault](err); ok {
		return fault
	}
	if l == nil || l.newest.Index == 0 || !errors.Is(err, errShorter) && !errors.Is(err, follow.ErrGenesis) {
		return nil
	}
	return l.fault(fmt.Sprintf("it signed a head of record %d, and now: %v", l.newest.Index, err), frame.Records{First: l.log.Head().Index}, nil)
}
