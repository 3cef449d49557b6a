package solana

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/record/backend"
)

// blockhashWait limits the search for a recent blockhash.
const blockhashWait = 20 * time.Second

// heightEvery is the number of status requests between two requests of the block height.
const heightEvery = 4

// sender signs transactions with one key, pays for them and delivers them.
type sender struct {
	pool   *rpc.Pool
	pace   Pace
	logger *slog.Logger
	secret identity.Key
	key    transaction.PublicKey // of secret
	fees   feeCache

	accounting sync.Mutex
	costs      Costs
	faulty     map[*rpc.Endpoint]fault // ignored endpoints, with their faults
}

func newSender(pool *rpc.Pool, pace Pace, logger *slog.Logger, key identity.Key, maxPrice uint64) *sender {
	return &sender{
		pool: pool, pace: pace, logger: logger, secret: key, key: transaction.PublicKey(key.ID()), fees: feeCache{limit: maxPrice},
		faulty: make(map[*rpc.Endpoint]fault),
	}
}

// trusted returns the endpoints in the order for requests. It starts with a different endpoint for
// each attempt, and puts ignored endpoints last.
func (s *sender) trusted(before int) []*rpc.Endpoint {
	all := s.pool.ByHealth()
	s.accounting.Lock()
	defer s.accounting.Unlock()
	var good, bad []*rpc.Endpoint
	for _, e := range all {
		if s.faulty[e] == noFault {
			good = append(good, e)
		} else {
			bad = append(bad, e)
		}
	}
	if len(good) > 0 {
		first := before % len(good)
		good = slices.Concat(good[first:], good[:first])
	}
	return append(good, bad...)
}

// setFault sets the fault of an endpoint.
func (s *sender) setFault(e *rpc.Endpoint, f fault) {
	s.accounting.Lock()
	defer s.accounting.Unlock()
	delete(s.faulty, e)
	if f != noFault {
		s.faulty[e] = f
	}
}

// order is a transaction to deliver.
type order struct {
	name         string
	instructions []transaction.Instruction
	units        uint32
	ticks        bool                   // it contains only ticks
	inTurn       bool                   // for ticks: in this client's turn
	landed       func() bool            // the agreed state shows that it landed; nil: never
	pointless    func() bool            // it must not be sent again; nil: never
	changed      func() <-chan struct{} // closed when landed or pointless may have changed; nil: check by time
}

// report is an endpoint's view of a delivery.
type report struct {
	endpoint int
	statuses []*rpc.Status
	height   uint64
}

// deliver signs an order and sends it to all endpoints until it is on the chain, or a quorum
// reports that it failed. It returns the slot in which the order landed, or 0 if only the agreed
// state shows that it landed. It returns backend.ErrDisconnected if the result remains unknown.
func (s *sender) deliver(ctx context.Context, o order) (slot uint64, err error) {
	n := len(s.pool.Endpoints())
	d := &delivery{quorum: n/2 + 1, resend: s.pace.Resend, repeat: s.pace.Repeat, heights: make([]uint64, n), only: o.ticks}
	run, cancel := context.WithCancel(ctx)
	reports, outboxes := make(chan report), make([]chan attempt, n)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel()
	for i := range outboxes {
		outboxes[i] = make(chan attempt, 1)
		senders.Go(func() { s.carry(run, i, outboxes[i], reports) })
	}
	for {
		var changed <-chan struct{}
		if o.changed != nil {
			changed = o.changed()
		}
		if o.landed != nil && len(d.attempts) > 0 && o.landed() {
			s.paid(&d.attempts[len(d.attempts)-1], o)
			return 0, nil
		}
		step := d.next(time.Now())
		if o.pointless != nil && o.pointless() && (step == stepSign || step == stepSend) {
			step = d.halt(time.Now(), 8*s.pace.Status)
		}
		switch step {
		case stepSign:
			next, err := s.sign(ctx, o, len(d.attempts))
			if err != nil {
				return 0, err
			}
			d.signed(next)
			continue
		case stepSend:
			for _, outbox := range outboxes {
				replace(outbox, d.attempts[len(d.attempts)-1])
			}
		case stepDone:
			landed, status, _ := d.result()
			s.paid(landed, o)
			return status.Slot, refusal(status.Err, len(d.attempts) > 1)
		case stepLost:
			if seen := d.seen(); seen != nil {
				s.paid(seen, o) // too few endpoints answer to confirm it
			}
			return 0, fmt.Errorf("%w: no transaction of the %s landed, according to %d endpoints", backend.ErrDisconnected, o.name, n)
		}
		if err := s.await(ctx, d, reports, changed); err != nil {
			return 0, err
		}
	}
}

// bring is deliver for callers that do not need the slot.
func (s *sender) bring(ctx context.Context, o order) error {
	_, err := s.deliver(ctx, o)
	return err
}

// replace replaces the value in a channel of capacity one.
func replace(outbox chan attempt, a attempt) {
	select {
	case <-outbox:
	default:
	}
	outbox <- a
}

// await waits for a report, a new state, or a timeout.
func (s *sender) await(ctx context.Context, d *delivery, reports <-chan report, changed <-chan struct{}) error {
	timer := time.NewTimer(s.pace.Status)
	defer timer.Stop()
	select {
	case r := <-reports:
		d.answered(r.endpoint, r.statuses, r.height)
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// carry sends the newest attempt to one endpoint, and requests its status.
func (s *sender) carry(ctx context.Context, endpoint int, outbox <-chan attempt, reports chan<- report) {
	e := s.pool.Endpoints()[endpoint]
	var names []transaction.Signature
	ticker := time.NewTicker(s.pace.Status)
	defer ticker.Stop()
	for requests := 0; ; {
		select {
		case <-ctx.Done():
			return
		case a := <-outbox:
			if len(names) == 0 || names[len(names)-1] != a.name {
				names = append(names, a.name)
			}
			if e.Resting() {
				continue // rate limited or unreachable; try again later
			}
			if _, err := e.Send(ctx, a.raw); err != nil {
				s.logger.Debug("cannot send a transaction", "error", err)
			}
		case <-ticker.C:
			if len(names) == 0 || e.Resting() {
				continue
			}
			r := report{endpoint: endpoint}
			var err error
			if r.statuses, _, err = e.Statuses(ctx, names, false); err != nil {
				continue
			}
			if requests%heightEvery == 0 {
				r.height, _ = e.BlockHeight(ctx, rpc.Confirmed)
			}
			requests++
			select {
			case reports <- r:
			case <-ctx.Done():
				return
			}
		}
	}
}

// sign makes a transaction of an order that was signed before times.
func (s *sender) sign(ctx context.Context, o order, before int) (attempt, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, blockhashWait, fmt.Errorf("%w: no endpoint answers", backend.ErrDisconnected))
	defer cancel()
	a := attempt{units: o.units, price: s.priceFor(ctx, &o, before)}
	if err := s.checkFunds(ctx, fee(a.units, a.price)); err != nil {
		return attempt{}, err
	}
	block, err := rpc.AnyOf(ctx, s.trusted(before), func(ctx context.Context, e *rpc.Endpoint) (rpc.Blockhash, error) {
		return e.LatestBlockhash(ctx, rpc.Confirmed)
	})
	if err != nil {
		return attempt{}, s.disconnected(ctx, err)
	}
	budget := []transaction.Instruction{transaction.ComputeUnitLimit(a.units)}
	if a.price > 0 {
		budget = append(budget, transaction.ComputeUnitPrice(a.price))
	}
	m, err := transaction.Compile(s.key, block.Hash, transaction.Placed(append(budget, o.instructions...))...)
	if err != nil {
		return attempt{}, err
	}
	signed, err := m.Sign(s.secret)
	if err != nil {
		return attempt{}, err
	}
	if a.raw, err = signed.Marshal(); err != nil {
		return attempt{}, err
	}
	a.name, a.lastValid, a.signed = signed.Name(), block.LastValid, time.Now()
	s.accounting.Lock()
	s.costs.Sent++
	s.accounting.Unlock()
	return a, nil
}

// disconnected converts an error of all endpoints into backend.ErrDisconnected.
func (s *sender) disconnected(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, rpc.ErrUnreachable) || errors.Is(err, rpc.ErrBusy) || errors.Is(err, rpc.ErrBadAnswer) {
		return fmt.Errorf("%w: %w", backend.ErrDisconnected, err)
	}
	return err
}

// refusal returns the meaning of a failed transaction. If the transaction was signed again, an error
// that its nonce was used or that its action was already applied means that an earlier attempt
// landed after all.
func refusal(failed *rpc.TransactionError, again bool) error {
	if failed == nil {
		return nil
	}
	if code, ok := failed.IsCustom(); ok {
		err := program.CustomError(code)
		if again && isDone(err) {
			return nil
		}
		return err
	}
	if builtin, ok := program.BuiltinError(failed.Detail); ok {
		return fmt.Errorf("%w: %w", failed, builtin)
	}
	return failed
}

// salt makes equal ticks of one client different transactions.
func salt() []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
}
