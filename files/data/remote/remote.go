package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/privatenet"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 20 * time.Second

// Pauses between attempts: the first and the longest, plus or minus a random half.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Options are the settings of a Client.
type Options struct {
	Addr  string                  // of the server, host:port
	Trust func(identity.ID) error // accepts or rejects the server's key
	RunID string                  // of the run
	Run   func() [32]byte         // hash of the run; nil or zero: the hash that the server sends
	Key   identity.Key            // of the member

	Inner bool // the server may have an address of a private network (package privatenet)

	SeqLen    int // tokens of a sequence, without the additional token that is only a label
	VocabSize int // token IDs must be less; 0: not checked

	OpenTimeout time.Duration // to reach the server the first time; 0: DefaultTimeout
	Timeout     time.Duration // to reach it again, for each call; 0: DefaultTimeout
	Logger      *slog.Logger  // nil: silent

	wrap func(net.Conn) net.Conn // wraps every new connection, for tests; may be nil
}

// Client is a data.Provider that reads from a data server.
type Client struct {
	options Options
	life    context.Context // ends with Close
	end     context.CancelFunc
	len     uint64

	line     line     // of the calls that use the following fields
	session  *session // nil: not connected
	receipts receipts
}

// Open connects to a data server.
func Open(ctx context.Context, o Options) (*Client, error) {
	if o.SeqLen < 1 || o.SeqLen > tokens.MaxSeqLen {
		return nil, fmt.Errorf("sequence length %d, want 1 to %d", o.SeqLen, tokens.MaxSeqLen)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.OpenTimeout, o.Timeout = cmp.Or(o.OpenTimeout, DefaultTimeout), cmp.Or(o.Timeout, DefaultTimeout)
	c := &Client{options: o, line: line{busy: make(chan struct{}, 1)}, receipts: receipts{of: make(map[string]data.Receipt)}}
	c.life, c.end = context.WithCancel(context.Background())
	err := c.do(ctx, o.OpenTimeout, c.line.enter, func(s *session) error {
		c.len = s.welcome.Sequences
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to data server %s: %w", o.Addr, err), c.Close())
	}
	return c, nil
}

// Len implements data.Provider.
func (c *Client) Len() uint64 { return c.len }

// Close implements data.Provider.
func (c *Client) Close() error {
	c.end()
	c.line.busy <- struct{}{}
	defer func() { <-c.line.busy }()
	c.drop()
	return nil
}

// Batch implements data.Provider. It returns only batches that the run assigns to the key and, in
// audited runs, batches of finished rounds. Every batch has a Receipt.
func (c *Client) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	return c.Gather(ctx, id, []assign.BatchID{id}, false)
}

// Gather is Batch for the sequences of several intervals, at most message.MaxIntervals. The batch has one Receipt. All
// other calls have priority over one for an audit: if one of them has to wait, the audit stops and starts again after
// it. It stops only once, because in short rounds an audit would otherwise never finish.
func (c *Client) Gather(ctx context.Context, id assign.BatchID, from []assign.BatchID, audit bool) (data.Batch, error) {
	if !audit {
		return c.batch(ctx, id, from, c.line.enter)
	}
	last := func(yield context.CancelFunc) entering {
		return func(ctx context.Context) (leave func(), err error) { return c.line.enterLast(ctx, yield) }
	}
	given, yield := context.WithCancel(ctx)
	defer yield()
	batch, err := c.batch(given, id, from, last(yield))
	if err != nil && given.Err() != nil && ctx.Err() == nil {
		return c.batch(ctx, id, from, last(nil))
	}
	return batch, err
}

func (c *Client) batch(ctx context.Context, id assign.BatchID, from []assign.BatchID, enter entering) (batch data.Batch, err error) {
	if err := tokens.CheckBatch(id, c.options.SeqLen); err != nil {
		return data.Batch{}, err
	}
	if n := (message.Request{Sequences: from}).Len(); n != id.Len() || len(from) > message.MaxIntervals {
		return data.Batch{}, fmt.Errorf("read batch %v: %d sequences in %d intervals, want %d in at most %d", id, n, len(from), id.Len(), message.MaxIntervals)
	}
	err = c.do(ctx, c.options.Timeout, enter, func(s *session) error {
		if batch, err = s.batch(id, from, c.options); err == nil {
			err = c.receipts.add(*batch.Receipt, c.options.Logger)
		}
		return err
	})
	if err != nil {
		return data.Batch{}, fmt.Errorf("read batch %v: %w", id, err)
	}
	return batch, nil
}

// Fingerprint returns data.Fingerprint of a sequence that the run has trained on.
func (c *Client) Fingerprint(ctx context.Context, index uint64) (hash [32]byte, err error) {
	if index == math.MaxUint64 {
		return hash, errors.New("no such sequence")
	}
	err = c.do(ctx, c.options.Timeout, c.line.enter, func(s *session) error {
		hash, err = s.fingerprint(index)
		return err
	})
	if err != nil {
		return hash, fmt.Errorf("fingerprint of sequence %d: %w", index, err)
	}
	return hash, nil
}

// entering waits until a call may use the connection. leave ends the use.
type entering func(ctx context.Context) (leave func(), err error)

// do makes a call on the connection. It connects if necessary, and repeats the call if that may
// help.
func (c *Client) do(ctx context.Context, timeout time.Duration, enter entering, call func(*session) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	leave, err := enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = firstPause, maxPause
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, c.attempt(ctx, call)
	},
		backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(timeout),
		backoff.WithNotify(func(err error, pause time.Duration) {
			c.options.Logger.Warn("data server unreachable; retrying", "server", c.options.Addr, "err", err, "pause", pause.Round(time.Millisecond))
		}))
	return err
}

// attempt makes one call. Errors that a retry cannot fix now are backoff.PermanentError.
func (c *Client) attempt(ctx context.Context, call func(*session) error) error {
	idle := c.session != nil
	err := c.once(ctx, call)
	if idle && err != nil && c.session == nil && ctx.Err() == nil && errors.Is(err, errServerGone) {
		// The connection may have been lost long before the call, so the call is repeated on a new one.
		err = c.once(ctx, call)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return backoff.Permanent(fmt.Errorf("%w: %w", ctx.Err(), err))
	case message.Is(err, message.WrongRun, message.BadData):
		return backoff.Permanent(fmt.Errorf("%w: %w", data.ErrUnusable, err))
	case errors.Is(err, privatenet.ErrInner):
		return backoff.Permanent(err)
	case data.IsPermanent(err), message.Is(err, message.NotAssigned, message.Repeated, message.NotTrained):
		return backoff.Permanent(err)
	default:
		return err
	}
}

// once connects, unless there is a connection, and makes the call. It keeps the connection only if
// the next call can use it.
func (c *Client) once(ctx context.Context, call func(*session) error) error {
	if c.session == nil {
		s, err := dial(ctx, c.options)
		if err != nil {
			return err
		}
		if c.len != 0 && s.welcome.Sequences != c.len {
			s.close()
			return fmt.Errorf("%w: the server now has %d sequences, before %d", data.ErrOtherData, s.welcome.Sequences, c.len)
		}
		c.session = s
	}
	stop := context.AfterFunc(ctx, c.session.close)
	err := call(c.session)
	_, denied := errors.AsType[*message.Error](err)
	_, hung := errors.AsType[hungUp](err)
	if !stop() || err != nil && (!denied || hung) {
		c.drop()
	}
	return err
}

func (c *Client) drop() {
	if c.session != nil {
		c.session.close()
		c.session = nil
	}
}

func (o Options) run() [32]byte {
	if o.Run == nil {
		return [32]byte{}
	}
	return o.Run()
}

// check refuses samples that cannot be used to train the model.
func (o Options) check(s message.Sample) error {
	if len(s.Tokens) < 2 || len(s.Tokens) > o.SeqLen+1 {
		return fmt.Errorf("%w: sample %d has %d tokens, want 2 to %d", message.ErrMalformed, s.Index, len(s.Tokens), o.SeqLen+1)
	}
	limit := int32(math.MaxInt32)
	if o.VocabSize > 0 && o.VocabSize <= math.MaxInt32 {
		limit = int32(o.VocabSize) - 1
	}
	for i, token := range s.Tokens {
		if token < 0 || token > limit {
			return fmt.Errorf("%w: token %d of sample %d is %d, the vocabulary has %d; check that the server's data has the run's tokenizer",
				tokens.ErrTokenRange, i, s.Index, token, o.VocabSize)
		}
	}
	for i, label := range s.Labels {
		if label != data.IgnoreLabel && (label < 0 || label > limit) {
			return fmt.Errorf("%w: label %d of sample %d is %d, the vocabulary has %d", tokens.ErrTokenRange, i, s.Index, label, o.VocabSize)
		}
	}
	for i, position := range s.Positions {
		if position < 0 || int(position) > o.SeqLen {
			return fmt.Errorf("%w: position %d of sample %d is %d, want 0 to %d", tokens.ErrTokenRange, i, s.Index, position, o.SeqLen)
		}
	}
	return nil
}
