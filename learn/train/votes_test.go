package train

import (
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
)

// voted trains a few steps of two members, and makes these and the others apply the results with votes.
func voted(t *testing.T, votes []uint8, trainers [2]*Trainer, others ...*Trainer) (applied []audit.Applied) {
	t.Helper()
	for step := uint32(1); step <= 4; step++ {
		a := audit.Applied{Step: step, Payloads: results(t, step, trainers[:]...), Votes: votes}
		for _, member := range append(trainers[:], others...) {
			if err := member.Apply(t.Context(), step, a.Payloads, votes, true); err != nil {
				t.Fatal(err)
			}
		}
		applied = slices.Insert(applied, 0, a)
	}
	return applied
}

// eachExchange runs a test with DisTrO's signs and values, and with local steps.
func eachExchange(t *testing.T, run func(t *testing.T, member func(changes ...func(*Options)) *Trainer)) {
	for name, signs := range map[string]bool{"signs": true, "values": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(changes ...func(*Options)) *Trainer {
				return newTestTrainer(t, append(changes, func(o *Options) {
					d := *o.Optimizer.Distro
					d.Quantize1Bit, d.ClipGradNorm = signs, 1
					o.Optimizer.Distro = &d
				})...)
			})
		})
	}
	t.Run("local steps", func(t *testing.T) {
		run(t, func(changes ...func(*Options)) *Trainer { return newLocalTrainer(t, changes...) })
	})
}

// TestReplicasApplyVotes checks that votes change the weights, that the CPU and devices compute the same
// weights, and that full votes give the bits of no votes.
func TestReplicasApplyVotes(t *testing.T) {
	eachExchange(t, func(t *testing.T, member func(changes ...func(*Options)) *Trainer) {
		kernels, _ := withKernels(t, nil)
		after := func(votes []uint8, others ...*Trainer) [32]byte {
			trainers := [2]*Trainer{member(), member()}
			voted(t, votes, trainers, others...)
			for i, other := range others {
				if digest(t, other) != digest(t, trainers[0]) {
					t.Errorf("votes %v: member %d has other weights", votes, i)
				}
			}
			return digest(t, trainers[0])
		}
		seen := map[[32]byte][]uint8{}
		for _, votes := range [][]uint8{nil, {16, 3}, {3, 16}} {
			model := after(votes, member(onDevices(1), kernels))
			if other, known := seen[model]; known {
				t.Errorf("votes %v lead to the model of the votes %v", votes, other)
			}
			seen[model] = votes
		}
		if _, known := seen[after([]uint8{assign.FullVote, assign.FullVote})]; !known {
			t.Error("full votes lead to another model than no votes")
		}
	})
}

// TestSpeculationNeedsTheSameVotes checks that results applied with other votes than the speculative ones
// undo the speculation.
func TestSpeculationNeedsTheSameVotes(t *testing.T) {
	trainer, other := newTestTrainer(t), newTestTrainer(t)
	payloads := results(t, 1, trainer, other)
	if done, err := trainer.Speculate(t.Context(), 1, payloads, []uint8{16, 16}, true); !done || err != nil {
		t.Fatal(done, err)
	}
	for _, member := range []*Trainer{trainer, other} {
		if err := member.Apply(t.Context(), 1, payloads, []uint8{16, 3}, true); err != nil {
			t.Fatal(err)
		}
	}
	if digest(t, trainer) != digest(t, other) {
		t.Error("the speculation stayed")
	}
}

// TestAuditsUndoVotes checks that an audit of an earlier step restores the weights before it, with the
// votes of the results applied since.
func TestAuditsUndoVotes(t *testing.T) {
	eachExchange(t, func(t *testing.T, member func(changes ...func(*Options)) *Trainer) {
		kernels, _ := withKernels(t, nil)
		for _, auditor := range []*Trainer{member(auditedRun), member(auditedRun, onDevices(1), kernels)} {
			before := copySlices(auditor.weights())
			applied := voted(t, []uint8{5, 16}, [2]*Trainer{member(auditedRun), member(auditedRun)}, auditor)
			restored := func(applied []audit.Applied) (far float64) {
				model := digest(t, auditor)
				x := audit.Recomputation{Step: 1, Applied: applied, Precision: audit.F32}
				if err := auditor.lock(t.Context()); err != nil {
					t.Fatal(err)
				}
				switch examiner := auditor.examiner.(type) {
				case *distroExaminer:
					back, err := examiner.earlier.restore(t.Context(), x)
					if err == nil {
						err = auditor.parallel.bring(t.Context())
					}
					far = farthest(auditor.weights(), before)
					if err != nil || back() != nil {
						t.Fatal(err)
					}
				case *replayer:
					back, err := examiner.keep(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := examiner.takeBack(x); err != nil {
						t.Fatal(err)
					}
					weights, err := examiner.at().read()
					far = farthest(weights, before)
					if err := errors.Join(err, back()); err != nil {
						t.Fatal(err)
					}
				}
				auditor.unlock()
				if digest(t, auditor) != model {
					t.Error("the audit changed the weights")
				}
				return far
			}
			if far := restored(applied); far > 1e-6 {
				t.Errorf("with the votes, a weight is off by %v", far)
			}
			for i := range applied {
				applied[i].Votes = nil
			}
			if far := restored(applied); far < 1e-5 {
				t.Errorf("without the votes, no weight is off by more than %v", far)
			}
		}
	})
}

func TestVotesThatDoNotFit(t *testing.T) {
	eachExchange(t, func(t *testing.T, member func(changes ...func(*Options)) *Trainer) {
		trainer := member()
		payloads := results(t, 1, trainer)
		before := digest(t, trainer)
		for _, votes := range [][]uint8{{}, {16, 16}, {0}, {17}} {
			if err := trainer.Apply(t.Context(), 1, payloads, votes, true); err == nil || digest(t, trainer) != before {
				t.Errorf("votes %v: error %v, or the weights have changed", votes, err)
			}
		}
	})
}
