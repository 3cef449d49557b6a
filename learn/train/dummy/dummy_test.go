package dummy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/env"
)

var _ env.Trainer = (*dummy.Trainer)(nil)

func begun(context.Context) error { return nil }

func open(t *testing.T, id byte, delay time.Duration) *dummy.Trainer {
	t.Helper()
	trainer, err := dummy.New(dummy.Options{Model: dummy.Model(), RunID: "run", TrainerID: [32]byte{id}, Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return trainer
}

func digest(t *testing.T, trainer *dummy.Trainer) [32]byte {
	t.Helper()
	s, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Step = 0
	return s.Manifest().Digest()
}

// TestOrderAndSetMatter checks that members get equal models from the same results in the same
// order, and different models from fewer results or another order.
func TestOrderAndSetMatter(t *testing.T) {
	batches := []data.Batch{
		{ID: assign.BatchID{Start: 0, End: 1}, Sequences: [][]int32{{1, 2, 3}}},
		{ID: assign.BatchID{Start: 1, End: 2}, Sequences: [][]int32{{4, 5, 6}}},
	}
	var payloads [][]byte
	for i, batch := range batches {
		trainer := open(t, byte(i), 0)
		payload, loss, err := trainer.Train(t.Context(), 7, batch, begun)
		if err != nil || loss <= 0 || len(payload) != trainer.MaxResultSize() {
			t.Fatal(len(payload), loss, err)
		}
		if err := trainer.Verify(payload, 7, batch.ID, [32]byte{byte(i)}); err != nil {
			t.Error(err)
		}
		for name, err := range map[string]error{
			"step":    trainer.Verify(payload, 8, batch.ID, [32]byte{byte(i)}),
			"batch":   trainer.Verify(payload, 7, assign.BatchID{Start: 5, End: 6}, [32]byte{byte(i)}),
			"trainer": trainer.Verify(payload, 7, batch.ID, [32]byte{9}),
			"length":  trainer.Verify(payload[1:], 7, batch.ID, [32]byte{byte(i)}),
		} {
			if !errors.Is(err, dummy.ErrResult) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		payloads = append(payloads, payload)
	}
	apply := func(payloads ...[]byte) [32]byte {
		trainer := open(t, 5, 0)
		if err := trainer.Apply(t.Context(), 7, payloads, nil, false); err != nil {
			t.Fatal(err)
		}
		return digest(t, trainer)
	}
	both := apply(payloads[0], payloads[1])
	if both != apply(payloads[0], payloads[1]) {
		t.Error("the same results gave two models")
	}
	for name, other := range map[string][32]byte{
		"none": apply(), "one": apply(payloads[0]), "another order": apply(payloads[1], payloads[0]),
	} {
		if other == both {
			t.Errorf("%s: the same model", name)
		}
	}
}

func TestLoad(t *testing.T) {
	trainer := open(t, 1, 0)
	payload, _, err := trainer.Train(t.Context(), 1, data.Batch{}, begun)
	if err == nil {
		err = trainer.Apply(t.Context(), 1, [][]byte{payload}, nil, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := trainer.Snapshot(t.Context())
	if err != nil || s.Step != 1 {
		t.Fatal(s.Step, err)
	}
	other := open(t, 2, 0)
	if err := other.Load(t.Context(), s); err != nil || digest(t, other) != digest(t, trainer) {
		t.Errorf("loaded another model: %v", err)
	}
	s.Tensors[0].Data = s.Tensors[0].Data[4:]
	if err := other.Load(t.Context(), s); !errors.Is(err, dummy.ErrModel) {
		t.Errorf("loaded a damaged model: %v", err)
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trainer := open(t, 1, time.Minute)
		started := time.Now()
		if _, _, err := trainer.Train(t.Context(), 1, data.Batch{}, begun); err != nil || time.Since(started) != time.Minute {
			t.Errorf("took %v, %v", time.Since(started), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := trainer.Train(ctx, 2, data.Batch{}, begun); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a cancelled training ended with %v", err)
		}
	})
}

// TestAudited checks that a member can audit another member's result, also after later results were
// applied.
func TestAudited(t *testing.T) {
	var members [2]*dummy.Audited
	for i := range members {
		var err error
		if members[i], err = dummy.NewAudited(dummy.Options{Model: dummy.Model(), RunID: "run", TrainerID: [32]byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	batch := data.Batch{ID: assign.BatchID{Start: 0, End: 1}, Sequences: [][]int32{{1, 2, 3}}}
	chunks := []uint32{0, 7}
	for step := uint32(1); step <= 4; step++ {
		payload, _, err := members[0].Train(t.Context(), step, batch, begun)
		if err != nil {
			t.Fatal(err)
		}
		if err := members[1].Verify(payload, step, batch.ID, [32]byte{0}); err != nil {
			t.Error(err)
		}
		if err := members[1].Verify(payload, step, batch.ID, [32]byte{1}); !errors.Is(err, dummy.ErrResult) {
			t.Errorf("another trainer's: %v", err)
		}
		opening, err := members[0].Open(step, chunks)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range members {
			if err := m.Apply(t.Context(), step, [][]byte{payload}, nil, i == 0); err != nil {
				t.Fatal(err)
			}
		}
		reference, err := members[1].Recompute(t.Context(), audit.Recomputation{Step: step, Weights: step - 1, Chunks: chunks}, batch)
		if err != nil {
			t.Fatal(err)
		}
		header, result, err := members[1].Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if step > 1 {
			continue // a later claim needs the root of the previous momentum, which the caller must look up
		}
		if report := reference.Check(audit.Claim{Opening: opening, Header: header, Result: result}); report.Judge(audit.F32Limits) != audit.Passed {
			t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
		}
	}
	if digest(t, members[0].Trainer) != digest(t, members[1].Trainer) {
		t.Error("two models")
	}
}
