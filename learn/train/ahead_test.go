package train

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// TestStepThatDoesNotCome checks that a step that was trained ahead can be given up. All later
// results have the bytes of a trainer that never began the step, and the step can still be trained
// later.
func TestStepThatDoesNotCome(t *testing.T) {
	requireTorch(t)
	for name, change := range map[string]func(o *Options){"": func(*Options) {}, "lookahead": lookingAhead} {
		t.Run(name, func(t *testing.T) {
			trainer, other := newTestTrainer(t, change), newTestTrainer(t, change)
			for _, each := range []*Trainer{trainer, other} {
				if _, _, err := each.Train(t.Context(), 1, toyBatch(0, 2), nil); err != nil {
					t.Fatal(err)
				}
			}
			gone := errors.New("its round does not come")
			var called int
			payload, _, err := trainer.Train(t.Context(), 2, toyBatch(2, 4), func(context.Context) error { called++; return gone })
			if !errors.Is(err, gone) || payload != nil || called != 1 {
				t.Fatalf("payload of %d bytes, begun called %d times, %v", len(payload), called, err)
			}
			if digest(t, trainer) != digest(t, other) {
				t.Error("the weights have changed")
			}
			compareMomentum(t, momentumOf(trainer.distro().optimizer), momentumOf(other.distro().optimizer))
			if len(trainer.distro().optimizer.sent) != 1 || trainer.distro().optimizer.encoded != 1 {
				t.Errorf("%d results are waiting", len(trainer.distro().optimizer.sent))
			}
			var results [2][]byte
			for i, each := range []*Trainer{trainer, other} {
				if results[i], _, err = each.Train(t.Context(), 2, toyBatch(4, 6), nil); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(results[0], results[1]) {
				t.Error("the step that came has another result")
			}
		})
	}
}

// TestStepThatComesLater checks that a step trained ahead has the result of a step trained in its
// round, if the round begins while the trainer waits. The gradient is computed before the round
// begins.
func TestStepThatComesLater(t *testing.T) {
	requireTorch(t)
	trainer, other := newTestTrainer(t), newTestTrainer(t)
	waits, begin := make(chan struct{}), make(chan struct{})
	var ahead []byte
	done := make(chan error, 1)
	go func() {
		var err error
		ahead, _, err = trainer.Train(t.Context(), 1, toyBatch(0, 2), func(context.Context) error {
			close(waits)
			<-begin
			return nil
		})
		done <- err
	}()
	<-waits
	compareMomentum(t, momentumOf(trainer.distro().optimizer), momentumOf(other.distro().optimizer))
	close(begin)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want, _, err := other.Train(t.Context(), 1, toyBatch(0, 2), nil)
	if err != nil || !bytes.Equal(ahead, want) {
		t.Errorf("trained ahead it has another result, %v", err)
	}
}
