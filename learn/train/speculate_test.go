package train

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// trained trains a step of a toy batch.
func trained(t *testing.T, trainer *Trainer, step uint32, from uint64) []byte {
	t.Helper()
	payload, _, err := trainer.Train(t.Context(), step, toyBatch(from, from+2), nil)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// speculate calls Speculate with one result.
func speculate(t *testing.T, trainer *Trainer, step uint32, payload []byte) {
	t.Helper()
	if done, err := trainer.Speculate(t.Context(), step, [][]byte{payload}, nil, true); !done || err != nil {
		t.Fatal(done, err)
	}
}

// TestSpeculationIsConfirmed checks that a step trained from predicted results, confirmed while the
// trainer waits, has the bits of a step trained after applying the results. This includes weights,
// momentum and results.
func TestSpeculationIsConfirmed(t *testing.T) {
	requireTorch(t)
	for name, change := range map[string]func(o *Options){"": func(*Options) {}, "audited": func(o *Options) { o.Audited = true }} {
		t.Run(name, func(t *testing.T) {
			trainer, other := newTestTrainer(t, change), newTestTrainer(t, change)
			for step := uint32(1); step <= 4; step++ {
				payload := trained(t, trainer, 2*step-1, uint64(step))
				if !bytes.Equal(payload, trained(t, other, 2*step-1, uint64(step))) {
					t.Fatalf("step %d has another result", 2*step-1)
				}
				speculate(t, trainer, 2*step-1, payload)
				if err := other.Apply(t.Context(), 2*step-1, [][]byte{payload}, nil, true); err != nil {
					t.Fatal(err)
				}
				ahead, _, err := trainer.Train(t.Context(), 2*step, toyBatch(8, 10), func(context.Context) error {
					if !trainer.Confirm(2*step - 1) {
						t.Error("the speculation cannot be confirmed")
					}
					return nil
				})
				if err != nil || !bytes.Equal(ahead, trained(t, other, 2*step, 8)) {
					t.Fatalf("step %d, trained ahead, has another result, %v", 2*step, err)
				}
				for _, each := range []*Trainer{trainer, other} {
					if err := each.Apply(t.Context(), 2*step, [][]byte{ahead}, nil, true); err != nil {
						t.Fatal(err)
					}
				}
			}
			if digest(t, trainer) != digest(t, other) {
				t.Error("the weights differ")
			}
			compareMomentum(t, momentumOf(trainer.distro().optimizer), momentumOf(other.distro().optimizer))
			if len(trainer.distro().optimizer.sent) != 0 {
				t.Errorf("%d results are waiting", len(trainer.distro().optimizer.sent))
			}
		})
	}
}

// TestWrongSpeculationIsUndone checks that a wrong prediction is undone, in every way in which the
// error can become known. The weights return to their earlier bits, and the actual results are
// applied.
func TestWrongSpeculationIsUndone(t *testing.T) {
	requireTorch(t)
	gone := errors.New("its round does not come")
	for name, follows := range map[string]func(t *testing.T, trainer *Trainer){
		"a snapshot": func(*testing.T, *Trainer) {},
		"a training that is given up": func(t *testing.T, trainer *Trainer) {
			if _, _, err := trainer.Train(t.Context(), 2, toyBatch(2, 4), func(context.Context) error { return gone }); !errors.Is(err, gone) {
				t.Error(err)
			}
		},
		"a training that nobody confirmed": func(t *testing.T, trainer *Trainer) {
			if _, _, err := trainer.Train(t.Context(), 2, toyBatch(2, 4), nil); !errors.Is(err, errStep) {
				t.Error(err)
			}
		},
		"a reset of the learning rate": func(t *testing.T, trainer *Trainer) {
			if err := trainer.SetColdStart(t.Context(), 0, 0); err != nil {
				t.Error(err)
			}
		},
		"another speculation": func(t *testing.T, trainer *Trainer) {
			if done, err := trainer.Speculate(t.Context(), 1, nil, nil, false); !done || err != nil {
				t.Error(done, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			trainer, other := newTestTrainer(t), newTestTrainer(t)
			payload := trained(t, trainer, 1, 0)
			trained(t, other, 1, 0)
			speculate(t, trainer, 1, payload)
			follows(t, trainer)
			if digest(t, trainer) != digest(t, other) {
				t.Error("the weights have changed")
			}
			if trainer.Confirm(1) {
				t.Error("a withdrawn speculation is confirmed")
			}
			for _, each := range []*Trainer{trainer, other} {
				if err := each.Apply(t.Context(), 1, nil, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			if digest(t, trainer) != digest(t, other) {
				t.Error("the real results lead to another model")
			}
			compareMomentum(t, momentumOf(trainer.distro().optimizer), momentumOf(other.distro().optimizer))
		})
	}
}

// TestSpeculativeResultsAreApplied checks that predicted results are applied, also if they are
// confirmed while no step is trained.
func TestSpeculativeResultsAreApplied(t *testing.T) {
	requireTorch(t)
	trainer, other := newTestTrainer(t), newTestTrainer(t)
	for step := uint32(1); step <= 3; step++ {
		payload := trained(t, trainer, step, uint64(step))
		trained(t, other, step, uint64(step))
		speculate(t, trainer, step, payload)
		if step == 2 {
			trainer.Confirm(step)
		} else if err := trainer.Apply(t.Context(), step, [][]byte{payload}, nil, true); err != nil {
			t.Fatal(err)
		}
		if err := other.Apply(t.Context(), step, [][]byte{payload}, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if digest(t, trainer) != digest(t, other) {
		t.Error("the weights differ")
	}
	if _, err := trainer.Speculate(t.Context(), 3, nil, nil, false); !errors.Is(err, errStep) {
		t.Errorf("speculation about an applied step: %v", err)
	}
	if done, err := newTestTrainer(t, lookingAhead).Speculate(t.Context(), 1, nil, nil, false); done || err != nil {
		t.Errorf("an optimizer with look-ahead speculates: %v, %v", done, err)
	}
}
