package llama

import "github.com/psyche-go/psyche/learn/torch"

// embed returns the residual stream of ids i64 [B,T] before the first layer.
func (m *Llama) embed(ids *torch.Tensor) *torch.Tensor { return m.embedIn(ids, m.options.Compute) }

func (m *Llama) embedIn(ids *torch.Tensor, dtype torch.DType) *torch.Tensor {
	x := m.embedding.Embed(ids, dtype)
	if scale := m.config.Scales.Embedding; scale != 1 {
		x = x.MulScalar(scale)
	}
	return x
}

// scaledHidden returns the residual stream after the last layer, ready for the head.
func (m *Llama) scaledHidden(x *torch.Tensor) *torch.Tensor {
	x = m.normal(x, m.norm)
	if scale := m.config.Scales.Logits; scale != 1 {
		x = x.MulScalar(scale)
	}
	return x
}

// logits returns the logits for the output of scaledHidden.
func (m *Llama) logits(x *torch.Tensor) *torch.Tensor {
	y := x.Linear(m.head.To(m.options.Compute))
	if limit := m.config.Scales.LogitCap; limit != 0 {
		y = capped(y, limit)
	}
	return y
}

// crossEntropy returns the mean loss for the output of scaledHidden, with targets i64 [n].
func (m *Llama) crossEntropy(x, targets *torch.Tensor) *torch.Tensor {
	x = x.Reshape(-1, int64(m.config.HiddenSize))
	if m.config.Scales.LogitCap == 0 {
		return x.LinearCrossEntropy(m.head, targets)
	}
	return m.logits(x).To(torch.F32).CrossEntropy(targets)
}

// sharedCrossEntropy returns the result of crossEntropy, and a tensor whose Backward computes share times
// its gradient.
func (m *Llama) sharedCrossEntropy(x, targets *torch.Tensor, share float64) (loss, root *torch.Tensor) {
	if m.config.Scales.LogitCap == 0 {
		loss = x.Reshape(-1, int64(m.config.HiddenSize)).LinearCrossEntropyShare(m.head, targets, share)
		return loss, loss
	}
	loss = m.crossEntropy(x, targets)
	return loss, loss.MulScalar(share)
}
