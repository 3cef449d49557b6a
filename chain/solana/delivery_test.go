package solana

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/core/coordinator"
)

func TestPrice(t *testing.T) {
	for _, test := range []struct {
		recent  []uint64
		attempt int
		limit   uint64
		want    uint64
	}{
		{nil, 0, 100, 0},
		{nil, 1, 100_000, firstRaise},
		{nil, 2, 100_000, 2 * firstRaise},
		{nil, 9, 5000, 5000},
		{[]uint64{0, 0, 0, 8, 0}, 0, 100, 0},
		{[]uint64{4, 1, 3, 2, 5}, 0, 100, 4},
		{[]uint64{4000, 1000, 3000, 2000, 5000}, 1, 100_000, 8000},
		{[]uint64{math.MaxUint64}, 0, 100, 100},
		{[]uint64{math.MaxUint64}, 3, math.MaxUint64, math.MaxUint64},
		{[]uint64{500}, 1, 100_000, firstRaise},
	} {
		if got := price(test.recent, test.attempt, test.limit); got != test.want {
			t.Errorf("%v after %d: %d, want %d", test.recent, test.attempt, got, test.want)
		}
	}
	if got := fee(120_000, 10_000); got != 5000+1200 {
		t.Errorf("fee %d", got)
	}
	if got := fee(3, 1); got != 5001 {
		t.Errorf("fractions of a lamport are not rounded up: %d", got)
	}
	if got := fee(7, math.MaxUint64); got != math.MaxUint64 {
		t.Errorf("fee %d", got)
	}
}

func TestDelivery(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	confirmed := &rpc.Status{Commitment: rpc.Confirmed}
	processed := &rpc.Status{Commitment: rpc.Processed}
	failed := &rpc.Status{Commitment: rpc.Confirmed, Err: &rpc.TransactionError{Name: "InstructionError", Detail: "Custom", Custom: 9}}
	type tell struct {
		endpoint int
		statuses []*rpc.Status
		height   uint64
	}
	for name, test := range map[string]struct {
		only  bool
		tells []tell
		at    float64
		want  step
	}{
		"just sent":                       {false, nil, 0.3, stepWait},
		"sent a slot ago":                 {false, nil, 0.4, stepSend},
		"sent a slot ago, and one saw it": {false, []tell{{1, []*rpc.Status{processed}, 1}}, 1.9, stepWait},
		"seen, and sent a while ago":      {false, []tell{{1, []*rpc.Status{processed}, 1}}, 2, stepSend},
		"seen, and not any more":          {false, []tell{{1, []*rpc.Status{processed}, 1}, {1, []*rpc.Status{nil}, 1}}, 1, stepSend},
		"one says confirmed":              {false, []tell{{0, []*rpc.Status{confirmed}, 1}}, 1, stepWait},
		"two say confirmed":               {false, []tell{{0, []*rpc.Status{confirmed}, 1}, {2, []*rpc.Status{confirmed}, 1}}, 1, stepDone},
		"two say processed":               {false, []tell{{0, []*rpc.Status{processed}, 1}, {2, []*rpc.Status{processed}, 1}}, 1, stepWait},
		"one says failed, one fine":       {false, []tell{{0, []*rpc.Status{failed}, 1}, {2, []*rpc.Status{confirmed}, 1}}, 1, stepWait},
		"two say failed":                  {false, []tell{{0, []*rpc.Status{failed}, 1}, {2, []*rpc.Status{failed}, 1}}, 1, stepDone},
		"one takes it back":               {false, []tell{{0, []*rpc.Status{confirmed}, 1}, {0, []*rpc.Status{nil}, 2}, {2, []*rpc.Status{confirmed}, 1}}, 1, stepWait},
		"one is past the last block":      {false, []tell{{0, nil, 101}}, 3, stepSend},
		"two are past the last block":     {false, []tell{{0, nil, 101}, {1, nil, 102}}, 3, stepSign},
		"past, but one has seen it":       {false, []tell{{0, []*rpc.Status{processed}, 101}, {1, nil, 102}}, 3, stepWait},
		"past, and it is to be sent once": {true, []tell{{0, nil, 101}, {1, nil, 102}}, 3, stepLost},
		"no endpoint has a height":        {false, nil, longestLife.Seconds(), stepSign},
	} {
		t.Run(name, func(t *testing.T) {
			d := &delivery{quorum: 2, resend: 400 * time.Millisecond, repeat: 2 * time.Second, heights: make([]uint64, 3), only: test.only}
			if got := d.next(begin); got != stepSign {
				t.Fatalf("step %d at first", got)
			}
			d.signed(attempt{lastValid: 100, signed: begin})
			if got := d.next(begin); got != stepSend {
				t.Fatalf("step %d after signing", got)
			}
			for _, tell := range test.tells {
				d.answered(tell.endpoint, tell.statuses, tell.height)
			}
			if got := d.next(at(test.at)); got != test.want {
				t.Fatalf("step %d, want %d", got, test.want)
			}
		})
	}
}

// TestDeliveryEnds checks that the client stops sending a transaction that never lands.
func TestDeliveryEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	d := &delivery{quorum: 1, resend: 400 * time.Millisecond, repeat: 2 * time.Second, heights: make([]uint64, 1)}
	signatures, sent := 0, 0
	for range 10_000 {
		switch d.next(now) {
		case stepSign:
			signatures++
			d.signed(attempt{lastValid: uint64(100 * signatures), signed: now})
			continue
		case stepSend:
			sent++
		case stepLost:
			if signatures != maxAttempts || sent < 20 {
				t.Errorf("%d signatures, sent %d times", signatures, sent)
			}
			return
		}
		now = now.Add(time.Second)
		d.answered(0, make([]*rpc.Status, signatures), d.heights[0]+2)
	}
	t.Error("the delivery does not end")
}

func TestHalt(t *testing.T) {
	now := time.Unix(1000, 0)
	d := &delivery{quorum: 1, heights: make([]uint64, 1)}
	if d.halt(now, time.Second) != stepLost {
		t.Error("waits for a transaction that was never sent")
	}
	d.signed(attempt{lastValid: 100, signed: now})
	if d.halt(now, time.Second) != stepWait || d.halt(now.Add(time.Second), time.Second) != stepLost {
		t.Error("the grace period is not kept")
	}
}

func TestRefusals(t *testing.T) {
	custom := func(code uint32) *rpc.TransactionError {
		return &rpc.TransactionError{Name: "InstructionError", Detail: "Custom", Custom: code}
	}
	if err := refusal(nil, false); err != nil {
		t.Error(err)
	}
	for _, code := range []coordinator.Code{coordinator.ErrDuplicate, coordinator.ErrStaleNonce} {
		if err := refusal(custom(uint32(code)), false); !errors.Is(err, code) {
			t.Errorf("error %v", err)
		}
		if err := refusal(custom(uint32(code)), true); err != nil {
			t.Errorf("signed again: error %v", err)
		}
	}
	if err := refusal(custom(uint32(coordinator.ErrFull)), true); !errors.Is(err, coordinator.ErrFull) {
		t.Errorf("error %v", err)
	}
	if err := refusal(&rpc.TransactionError{Name: "InstructionError", Detail: "IncorrectAuthority"}, false); err == nil || err.Error() == "" {
		t.Error("a builtin error is not recognised")
	}
}
