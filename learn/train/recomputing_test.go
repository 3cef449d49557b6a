package train

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"weak"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// question returns the request to recompute a step from the current weights.
func (a *audited) question(step uint32) audit.Recomputation {
	x := audit.Recomputation{Step: step, Trainer: [32]byte{1}, Precision: a.in, Chunks: allChunks(a.verifier.Shapes()), Weights: step - min(step, a.lag)}
	for _, applied := range a.applied {
		if applied.Step > x.Weights {
			x.Applied = append(x.Applied, applied)
		}
	}
	return x
}

// inPieces recomputes with an interruption after each micro-batch, or each group of micro-batches that the
// workers compute at the same time, and calls between after each interruption.
func (a *audited) inPieces(x func() audit.Recomputation, batch data.Batch, between func(piece int)) (reference *audit.Reference, pieces int) {
	a.t.Helper()
	for looks := 1; ; {
		before := added(a.verifier)
		ctx := &ending{Context: a.t.Context()}
		ctx.left.Store(int32(looks))
		model := digest(a.t, a.verifier)
		reference, err := a.verifier.Recompute(ctx, x(), batch)
		if digest(a.t, a.verifier) != model {
			a.t.Fatalf("piece %d: the model changed", pieces)
		}
		switch now := added(a.verifier); {
		case err == nil:
			return reference, pieces
		case !errors.Is(err, context.Canceled) || now < before || looks > 100:
			a.t.Fatalf("piece %d: %d micro-batches after %d, error %v", pieces, now, before, err)
		case now == before:
			looks++ // it was interrupted before the first micro-batch
		default:
			pieces++
			between(pieces)
		}
	}
}

// added returns how many micro-batches of an interrupted recomputation are done.
func added(t *Trainer) (count int) {
	if t.keeper.kept != nil {
		for _, done := range t.keeper.kept.state.(*accumulation).done {
			count += done
		}
	}
	return count
}

// verifiers are the ways to compute a gradient.
func verifiers(t *testing.T) map[string][]func(*Options) {
	return map[string][]func(*Options){
		"one engine":      nil,
		"bf16":            {func(o *Options) { o.Compute.Compute = torch.BF16 }},
		"data parallel":   {func(o *Options) { o.Parallel.Data, o.Threads = 2, 2 }},
		"tensor parallel": {func(o *Options) { o.Parallel.Tensor, o.Threads = 2, 2 }},
		"experts":         {func(o *Options) { o.Model = snapshotOf(t, toyQwen3MoE) }},
	}
}

// withVerifier returns a run whose verifier computes one sequence at a time, with changed options.
func withVerifier(t *testing.T, lag uint32, change ...func(*Options)) *audited {
	a := newAudited(t, lag, true, func(*Options) {})
	a.verifier = newTestTrainer(t, append([]func(*Options){func(o *Options) {
		o.Audited, o.Model, o.TrainerID, o.MicroBatch = true, snapshotOf(t, splitConfig), [32]byte{2}, 1
		o.Optimizer.Distro.ApplyLag, o.Optimizer.Distro.Quantize1Bit, o.Optimizer.Distro.ClipGradNorm = uint8(lag), true, 1
	}}, change...)...)
	return a
}

// TestRecomputationsGoOn checks that a recomputation of DisTrO with an interruption after every micro-batch has
// the same bits as an uninterrupted recomputation, in each type, on one engine and on several. Between the
// pieces, the trainer trains, rolls back and speculates, and has the same results as a trainer without audits.
func TestRecomputationsGoOn(t *testing.T) {
	for name, change := range verifiers(t) {
		for _, in := range []audit.Precision{audit.F32, audit.BF16} {
			t.Run(name+" "+in.String(), func(t *testing.T) {
				if (name == "bf16" || in == audit.BF16) && !torchtest.BF16(t) {
					t.Skip("needs a machine on which bf16 computes rightly")
				}
				testRecomputationsGoOn(t, in, change)
			})
		}
	}
}

func testRecomputationsGoOn(t *testing.T, in audit.Precision, change []func(*Options)) {
	for lag := uint32(1); lag <= 2; lag++ {
		a, never := withVerifier(t, lag, change...), withVerifier(t, lag, change...)
		a.in = in
		batch, step := toyBatch(8, 14), uint32(0)
		var first [2][]byte
		x := func() audit.Recomputation { return a.question(1) }
		want, err := a.verifier.Recompute(t.Context(), x(), batch)
		if errors.Is(err, errUnsupported) || errors.Is(err, torch.ErrSlowType) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		got, pieces := a.inPieces(x, batch, func(piece int) {
			var results [2][]byte
			for i, v := range []*Trainer{a.verifier, never.verifier} {
				var err error
				if results[i], _, err = v.Train(t.Context(), step+1, toyBatch(80, 82), nil); err != nil {
					t.Fatal(err)
				}
				if err := v.SetAttested(step+1, piece%2 == 0); err != nil {
					t.Fatal(err)
				}
				if step == 0 {
					first[i] = results[i]
				}
				if done, err := v.Speculate(t.Context(), 1, first[i:i+1], nil, false); err != nil || !done {
					t.Fatalf("speculated: %v, error %v", done, err)
				}
			}
			if _, err := never.verifier.LR(t.Context(), 1); err != nil { // undoes the speculation, as a recomputation does
				t.Fatal(err)
			}
			if step++; !slices.Equal(results[0], results[1]) {
				t.Fatalf("piece %d: the auditor trains another result", piece)
			}
		})
		if !reflect.DeepEqual(got, want) || pieces < 2 {
			t.Errorf("lag %d: another reference after %d interruptions", lag, pieces)
		}
		if a.verifier.keeper.kept != nil {
			t.Error("something is still kept")
		}
	}
}

// TestRecomputationsGoOnWhileRoundsAreApplied checks that an audit passes whose pieces are in different rounds.
// Each piece undoes the results that were applied since the audited step. Between two of the pieces the
// optimizer starts again, as at the start of an epoch.
func TestRecomputationsGoOnWhileRoundsAreApplied(t *testing.T) {
	for lag := uint32(1); lag <= 2; lag++ {
		a := withVerifier(t, lag)
		batch, step := toyBatch(8, 14), uint32(1)
		payload := a.step(step, batch, true)
		opening, err := a.trainer.Open(step, allChunks(a.trainer.Shapes()))
		if err != nil {
			t.Fatal(err)
		}
		a.hold(step, true)
		a.applyOldest()
		reference, pieces := a.inPieces(func() audit.Recomputation { return a.question(1) }, batch, func(piece int) {
			step++
			a.step(step, toyBatch(uint64(step)*8, uint64(step)*8+2), piece != 2)
			a.hold(step, piece != 3)
			a.applyOldest()
			if piece == 4 {
				if err := a.verifier.ResetOptimizer(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
		header, results, err := a.verifier.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		report := reference.Check(audit.Claim{Opening: opening, Result: results, Header: header})
		if report.Judge(testLimits) != audit.Passed || report.Error > 1e-3 || pieces < 4 {
			t.Errorf("lag %d: %v after %d interruptions, fault %v, error %v", lag, report.Judge(testLimits), pieces, report.Fault, report.Error)
		} else {
			t.Logf("lag %d: error %.2g after %d interruptions and %d rounds", lag, report.Error, pieces, step-1)
		}
	}
}

// halfWay recomputes until some micro-batches are done.
func (a *audited) halfWay(x audit.Recomputation, batch data.Batch) {
	a.t.Helper()
	for looks := int32(1); added(a.verifier) == 0; looks++ {
		ctx := &ending{Context: a.t.Context()}
		ctx.left.Store(looks)
		if _, err := a.verifier.Recompute(ctx, x, batch); !errors.Is(err, context.Canceled) {
			a.t.Fatalf("it was not interrupted: %v", err)
		}
	}
}

// TestRecomputationsBeginAgain checks when an interrupted recomputation does not continue: for another
// result, other tokens, chunks, weights or another type, after another model was loaded, after it was
// abandoned, without memory, and after a failure. The result is right in all cases.
func TestRecomputationsBeginAgain(t *testing.T) {
	batch, other := toyBatch(8, 14), toyBatch(9, 15)
	for name, c := range map[string]struct {
		ask  func(x *audit.Recomputation, batch *data.Batch) // the interrupted recomputation
		do   func(a *audited)
		stay bool // the interrupted recomputation remains
	}{
		"another trainer": {ask: func(x *audit.Recomputation, _ *data.Batch) { x.Trainer[0]++ }, stay: true},
		"other tokens":    {ask: func(_ *audit.Recomputation, b *data.Batch) { *b = other }, stay: true},
		"other chunks":    {ask: func(x *audit.Recomputation, _ *data.Batch) { x.Chunks = x.Chunks[1:] }, stay: true},
		"another step":    {ask: func(x *audit.Recomputation, _ *data.Batch) { x.Step++ }, stay: true},
		"loaded": {do: func(a *audited) {
			s, err := a.verifier.Snapshot(t.Context())
			if err == nil {
				err = a.verifier.Load(t.Context(), s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		"abandoned":        {do: func(a *audited) { a.verifier.Abandon(1, [32]byte{1}) }},
		"abandoned others": {do: func(a *audited) { a.verifier.Abandon(2, [32]byte{1}); a.verifier.Abandon(1, [32]byte{2}) }, stay: true},
		"memory is short": {do: func(a *audited) {
			a.verifier.keeper.available = func() uint64 { return 4*uint64(a.verifier.Elements()) - 1 }
			if _, _, err := a.verifier.Train(t.Context(), 1, toyBatch(80, 82), nil); err != nil {
				t.Fatal(err)
			}
		}},
		"failed": {do: func(a *audited) {
			x := a.question(1)
			x.Applied = []audit.Applied{{Step: 1, Payloads: [][]byte{{1}}}}
			if _, err := a.verifier.Recompute(t.Context(), x, batch); err == nil {
				t.Error("no error")
			}
		}},
	} {
		a := withVerifier(t, 1)
		want, err := a.verifier.Recompute(t.Context(), a.question(1), batch)
		if err != nil {
			t.Fatal(err)
		}
		x, of := a.question(1), batch
		if c.ask != nil {
			c.ask(&x, &of)
		}
		a.halfWay(x, of)
		if c.do != nil {
			c.do(a)
		}
		if (a.verifier.keeper.kept != nil) != c.stay {
			t.Errorf("%s: kept: %v", name, !c.stay)
		}
		got, err := a.verifier.Recompute(t.Context(), a.question(1), batch)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: another reference, error %v", name, err)
		}
	}
}

// TestKeptRecomputationsTakeAGradient checks the memory of an interrupted recomputation: one gradient for each
// worker, no results of other members, and nothing if twice that memory is not available.
func TestKeptRecomputationsTakeAGradient(t *testing.T) {
	for workers, change := range [][]func(*Options){nil, {func(o *Options) { o.Parallel.Data, o.Threads = 2, 2 }}} {
		a := withVerifier(t, 1, change...)
		a.step(1, toyBatch(4, 6), true)
		a.applyOldest()
		bytes := 4 * uint64(a.verifier.Elements()) * uint64(workers+1)
		batch, x := toyBatch(8, 14), a.question(1)
		x.Applied[0].Payloads = [][]byte{slices.Clone(x.Applied[0].Payloads[0])}
		result := weak.Make(&x.Applied[0].Payloads[0][0])
		if _, err := a.verifier.Recompute(t.Context(), x, batch); err != nil {
			t.Fatal(err)
		}
		live := torch.LiveTensors()
		a.halfWay(x, batch)
		if got := torch.LiveTensors(); got != live {
			t.Errorf("%d tensors are left", got-live)
		}
		kept := a.verifier.keeper.kept
		values := uint64(0)
		for _, of := range kept.state.(*accumulation).taken {
			for _, gradient := range of {
				values += uint64(len(gradient))
			}
		}
		if kept.bytes != bytes || 4*values > bytes || values == 0 {
			t.Errorf("%d values, in %d bytes, want %d", values, kept.bytes, bytes)
		}
		x.Applied = nil
		runtime.GC()
		if result.Value() != nil {
			t.Error("an applied result is kept too")
		}
		for _, c := range []struct {
			available uint64
			room      bool
		}{{2*bytes - 1, false}, {2 * bytes, true}, {0, true}} {
			a.verifier.keeper.available = func() uint64 { return c.available }
			if a.verifier.keeper.hasRoom(bytes) != c.room {
				t.Errorf("%d bytes available: room: %v", c.available, !c.room)
			}
		}
		a.verifier.Abandon(1, [32]byte{1})
		a.verifier.keeper.available = func() uint64 { return 1 }
		ctx := &ending{Context: t.Context()}
		ctx.left.Store(5)
		if _, err := a.verifier.Recompute(ctx, a.question(1), batch); !errors.Is(err, context.Canceled) || a.verifier.keeper.kept != nil {
			t.Errorf("without memory: error %v, kept: %v", err, a.verifier.keeper.kept != nil)
		}
	}
}

// TestKeeperIsSafe uses a keeper as an auditor's loop and a trainer do at the same time. It needs no tensors, so that
// the race detector can run it.
func TestKeeperIsSafe(t *testing.T) {
	k := newKeeper()
	k.available = func() uint64 { return 10 }
	var group sync.WaitGroup
	for step := range uint32(4) {
		group.Go(func() {
			for range 1000 {
				r := k.take(audit.Recomputation{Step: step, Applied: make([]audit.Applied, 1)}, [32]byte{})
				if len(r.x.Applied) != 1 || r.x.Step != step {
					t.Errorf("took step %d with %d applied rounds", r.x.Step, len(r.x.Applied))
					return
				}
				r.bytes = uint64(step) * 5 // 15 bytes are too much
				k.keep(r)
				k.drop(func(r *recomputing) bool { return r.x.Step == step+1 })
				k.relieve()
			}
		})
	}
	group.Wait()
	if k.relieve(); k.kept != nil && (k.kept.bytes == 0 || k.kept.bytes > 10) {
		t.Errorf("%d bytes are kept", k.kept.bytes)
	}
}
