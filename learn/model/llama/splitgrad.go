package llama

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/learn/torch"
)

// pass is one forward and backward pass of a split model. The residual stream and its gradient are
// in Go memory, f32, where all engines read them.
type pass struct {
	split  *Split
	shape  []int64 // of the stream: [B,T,HiddenSize]
	stream []float32
	slope  []float32
	halves [][]half // for each sublayer, for each shard
}

// half contains the tensors of a sublayer that a shard keeps for the backward pass.
type half struct{ in, out *torch.Tensor }

// Gradient computes the mean cross-entropy of predicting targets from ids, both [B,T] flattened, as
// Loss does, and adds share times its gradient to the sums for AddTo. A cancelled ctx ends it
// between two layers. The sums are then undefined; see Drop.
func (p *Split) Gradient(ctx context.Context, ids, targets []int32, batch, tokens int64, share float64) (loss float64, err error) {
	if limit := int64(p.whole.config.MaxPositionEmbeddings); tokens > limit {
		return 0, fmt.Errorf("%d tokens, max_position_embeddings is %d", tokens, limit)
	}
	a := &pass{split: p, shape: []int64{batch, tokens, int64(p.whole.config.HiddenSize)}}
	a.stream = make([]float32, batch*tokens*a.shape[2])
	a.halves = make([][]half, 2*p.whole.config.NumHiddenLayers)
	defer func() { err = errors.Join(err, a.free(context.WithoutCancel(ctx))) }()

	err = p.first().Do(ctx, false, func(s *torch.Scope) error {
		copy(a.stream, p.shards[0].model.embed(s.FromInt32s(ids, batch, tokens)).CopyFloat32s())
		return nil
	})
	if err != nil {
		return 0, err
	}
	for h := range a.halves {
		if err := a.forward(ctx, h); err != nil {
			return 0, err
		}
	}
	if loss, err = a.head(ctx, targets, share); err != nil {
		return 0, err
	}
	for h := len(a.halves) - 1; h >= 0; h-- {
		if err := a.backward(ctx, h); err != nil {
			return 0, err
		}
	}
	return loss, p.first().Do(ctx, true, func(s *torch.Scope) error {
		rows := p.shards[0].model.embedIn(s.FromInt32s(ids, batch, tokens), torch.F32)
		rows.Mul(s.FromFloat32s(a.slope, a.shape...)).Sum().Backward()
		return nil
	})
}

func (p *Split) first() *torch.Engine { return p.shards[0].model.engine }

// forward adds the output of sublayer h to the stream. Each layer has two sublayers.
func (p *pass) forward(ctx context.Context, h int) error {
	p.halves[h] = make([]half, len(p.split.shards))
	parts := make([][]float32, len(p.split.shards))
	err := p.split.onAll(ctx, true, func(i int, scope *torch.Scope, s *shard) error {
		in := scope.FromFloat32s(p.stream, p.shape...).SetRequiresGrad(true)
		x, out := in.To(s.model.options.Compute), (*torch.Tensor)(nil)
		if h%2 == 0 {
			out = s.model.attention(scope, &s.model.blocks[h/2], x, s.model.rotations(scope, 0, x.Dim(1), s.model.long(x.Dim(1))))
		} else {
			out = s.model.feedForward(scope, &s.model.blocks[h/2], x)
		}
		if scale := s.model.config.Scales.Residual; scale != 1 {
			out = out.MulScalar(scale)
		}
		out = out.To(torch.F32).Contiguous()
		parts[i] = out.Float32s()
		p.halves[h][i] = half{scope.Keep(in), scope.Keep(out)}
		return nil
	})
	if err == nil {
		accumulate(p.stream, parts)
	}
	return err
}

// head computes the loss on the first engine, and the gradient at the end of the stream.
func (p *pass) head(ctx context.Context, targets []int32, share float64) (loss float64, err error) {
	err = p.split.first().Do(ctx, true, func(s *torch.Scope) error {
		m := p.split.shards[0].model
		in := s.FromFloat32s(p.stream, p.shape...).SetRequiresGrad(true)
		l, root := m.sharedCrossEntropy(m.scaledHidden(in.To(m.options.Compute)), s.FromInt32s(targets, int64(len(targets))), share)
		loss = l.Item()
		root.Backward()
		p.slope = in.Grad().Contiguous().CopyFloat32s()
		return nil
	})
	return loss, err
}

// backward adds the gradient through sublayer h, of two in each layer, to the gradient of the
// stream. The stream's own gradient bypasses the sublayer.
func (p *pass) backward(ctx context.Context, h int) error {
	parts := make([][]float32, len(p.split.shards))
	err := p.split.onAll(ctx, true, func(i int, scope *torch.Scope, _ *shard) error {
		done := &p.halves[h][i]
		done.out.Mul(scope.FromFloat32s(p.slope, p.shape...)).Sum().Backward()
		parts[i] = done.in.Grad().Contiguous().CopyFloat32s()
		done.free()
		return nil
	})
	if err == nil {
		accumulate(p.slope, parts)
	}
	return err
}

func (h *half) free() {
	if h.in != nil {
		h.in.Free()
		h.out.Free()
	}
	*h = half{}
}

// free frees the tensors of an interrupted pass.
func (p *pass) free(ctx context.Context) error {
	return p.split.onAll(ctx, false, func(i int, _ *torch.Scope, _ *shard) error {
		for _, of := range p.halves {
			if of != nil {
				of[i].free()
			}
		}
		return nil
	})
}

// accumulate adds the parts, one after the other, and then adds the sum to total.
func accumulate(total []float32, parts [][]float32) {
	for i := range total {
		sum := parts[0][i]
		for _, part := range parts[1:] {
			sum += part[i]
		}
		total[i] += sum
	}
}

// AddTo adds the gradients accumulated since the last AddTo or Drop to sums, which are in the order
// of the whole model's parameters, and clears them. Shards are added in their order.
func (p *Split) AddTo(ctx context.Context, sums [][]float32) error {
	places := make(map[string]int, len(sums))
	for i, parameter := range p.whole.parameters {
		places[parameter.Name] = i
	}
	for _, s := range p.shards {
		err := s.model.engine.Do(ctx, false, func(*torch.Scope) error {
			for _, piece := range s.pieces {
				if grad := piece.tensor.Grad(); grad != nil {
					piece.add(grad.Contiguous().Float32s(), piece.tensor.Shape(), sums[places[piece.name]])
					piece.tensor.ClearGrad()
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("gather gradients: %w", err)
		}
	}
	return nil
}

// add adds the gradient of the piece, with the given shape, to the gradient of the whole parameter.
func (p piece) add(grad []float32, shape []int64, sum []float32) {
	if p.whole || p.dim == 0 {
		first := int64(0)
		if !p.whole {
			first = p.first * int64(len(grad)) / shape[0]
		}
		for i, g := range grad {
			sum[first+int64(i)] += g
		}
		return
	}
	width := int64(len(sum)) / shape[0] // of a row of the whole parameter
	for row := range shape[0] {
		to := sum[row*width+p.first : row*width+p.first+shape[1]]
		for i, g := range grad[row*shape[1] : (row+1)*shape[1]] {
			to[i] += g
		}
	}
}

// Take returns the gradients accumulated since the last AddTo or Drop, for Put, and clears them. They are
// in an order that only Put knows.
func (p *Split) Take(ctx context.Context) (gradients [][]float32, err error) {
	for _, s := range p.shards {
		err := s.model.engine.Do(ctx, false, func(*torch.Scope) error {
			for _, piece := range s.pieces {
				gradients = append(gradients, piece.tensor.TakeGrad())
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("take gradients: %w", err)
		}
	}
	return gradients, nil
}

// Put continues from gradients that Take returned, bit for bit. None may be accumulated. It sets the slices
// to nil.
func (p *Split) Put(ctx context.Context, gradients [][]float32) error {
	for _, s := range p.shards {
		err := s.model.engine.Do(ctx, true, func(*torch.Scope) error {
			for i, piece := range s.pieces {
				piece.tensor.PutGrad(gradients[i])
				gradients[i] = nil
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("put gradients: %w", err)
		}
		gradients = gradients[len(s.pieces):]
	}
	return nil
}

// Drop clears the gradients accumulated since the last AddTo.
func (p *Split) Drop(ctx context.Context) error {
	return p.onAll(ctx, false, func(_ int, _ *torch.Scope, s *shard) error {
		for _, piece := range s.pieces {
			piece.tensor.ClearGrad()
		}
		return nil
	})
}
