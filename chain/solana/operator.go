package solana

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/record/backend"
)

// Operator sends transactions that are not actions in a run, such as the deployment of the program,
// and pays for them with its key.
type Operator struct{ sender *sender }

// NewOperator returns an Operator. It does not connect. It uses only the fields Endpoints, Key,
// MaxPrice, Pace, Transport and Logger of o.
func NewOperator(o Options) (*Operator, error) {
	o.Program, o.Run, o.RunID, o.Addrs = transaction.LoaderProgram, transaction.LoaderProgram, "", nil // not used
	if err := o.check(); err != nil {
		return nil, err
	}
	pool, err := rpc.NewPool(rpc.Options{Endpoints: o.Endpoints, Transport: o.Transport})
	if err != nil {
		return nil, err
	}
	return &Operator{newSender(pool, o.Pace, o.Logger, o.Key, o.MaxPrice)}, nil
}

// Key returns the key that pays.
func (o *Operator) Key() transaction.PublicKey { return o.sender.key }

// Pool returns the operator's nodes.
func (o *Operator) Pool() *rpc.Pool { return o.sender.pool }

// Close closes idle connections.
func (o *Operator) Close() { o.sender.pool.Close() }

// Send sends one transaction with a limit of units compute units, and returns once it is confirmed.
func (o *Operator) Send(ctx context.Context, name string, units uint32, instructions ...transaction.Instruction) error {
	if err := o.sender.bring(ctx, order{name: name, instructions: instructions, units: units}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Limits of SendEach.
const (
	window       = 24 // concurrent transactions
	maxSignings  = 8  // per instruction
	eachLifetime = 90 * time.Second
)

// SendEach sends every instruction in a separate transaction, in any order. After each confirmation
// it calls landed, if landed is not nil. An instruction may land twice if no node reports that it
// landed.
func (o *Operator) SendEach(ctx context.Context, name string, units uint32, instructions []transaction.Instruction, landed func()) error {
	for some := range slices.Chunk(instructions, window) {
		for signings := 0; len(some) > 0; signings++ {
			if signings == maxSignings {
				return fmt.Errorf("%s: %w: %d transactions did not land, signed %d times", name, backend.ErrDisconnected, len(some), signings)
			}
			left, err := o.sendWindow(ctx, units, some, signings, landed)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			some = left
		}
	}
	return nil
}

// sendWindow signs instructions once, and returns the instructions that did not land in time.
func (o *Operator) sendWindow(ctx context.Context, units uint32, instructions []transaction.Instruction, signings int, landed func()) ([]transaction.Instruction, error) {
	s := o.sender
	attempts := make([]attempt, len(instructions))
	for i, in := range instructions {
		var err error
		if attempts[i], err = s.sign(ctx, order{instructions: []transaction.Instruction{in}, units: units}, signings); err != nil {
			return nil, err
		}
	}
	left := slices.Clone(instructions)
	ticker := time.NewTicker(s.pace.Status)
	defer ticker.Stop()
	var sent time.Time
	for began := time.Now(); len(left) > 0 && time.Since(began) < eachLifetime; {
		if time.Since(sent) >= s.pace.Repeat {
			sent = time.Now()
			for i := range attempts {
				o.sendAnywhere(ctx, attempts[i].raw)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		statuses, err := o.statuses(ctx, attempts)
		if err != nil {
			continue // all nodes are temporarily unreachable
		}
		for i := len(attempts) - 1; i >= 0; i-- {
			if statuses[i] == nil || !statuses[i].Reached(rpc.Confirmed) {
				continue
			}
			s.paid(&attempts[i], order{})
			if err := refusal(statuses[i].Err, true); err != nil {
				return nil, err
			}
			attempts, left = slices.Delete(attempts, i, i+1), slices.Delete(left, i, i+1)
			if landed != nil {
				landed()
			}
		}
		if height := o.height(ctx); len(attempts) > 0 && height > attempts[len(attempts)-1].lastValid {
			break
		}
	}
	return left, nil
}

func (o *Operator) sendAnywhere(ctx context.Context, raw []byte) {
	_, err := rpc.Any(ctx, o.sender.pool, func(ctx context.Context, e *rpc.Endpoint) (transaction.Signature, error) {
		return e.Send(ctx, raw)
	})
	if err != nil {
		o.sender.logger.Debug("cannot send a transaction", "error", err)
	}
}

func (o *Operator) statuses(ctx context.Context, attempts []attempt) ([]*rpc.Status, error) {
	names := make([]transaction.Signature, len(attempts))
	for i := range attempts {
		names[i] = attempts[i].name
	}
	return rpc.Any(ctx, o.sender.pool, func(ctx context.Context, e *rpc.Endpoint) ([]*rpc.Status, error) {
		found, _, err := e.Statuses(ctx, names, false)
		return found, err
	})
}

// height returns the newest block height, or 0 if no node answers.
func (o *Operator) height(ctx context.Context) uint64 {
	height, _ := rpc.Any(ctx, o.sender.pool, func(ctx context.Context, e *rpc.Endpoint) (uint64, error) {
		return e.BlockHeight(ctx, rpc.Confirmed)
	})
	return height
}
