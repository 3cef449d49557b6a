// Package train trains a model: it computes gradients of batches of tokens and updates the model's
// weights.
//
// Trainer is the trainer of a run. For each step its owner calls
//
//	payload, loss, err := trainer.Train(ctx, step, batch, nil) // own share: gradient to result
//	err = trainer.Verify(payload, step, id, key)               // others' results, concurrently
//	err = trainer.Apply(ctx, step, payloads, ownCounted)       // everything that counted
//
// and Snapshot, Load and ResetOptimizer between epochs. Replicas with the same payloads hold the
// same weights, bit for bit: only Apply changes weights, by payloads that all members have. The
// state of a single trainer, its momentum, is in separate buffers.
//
// A Trainer consists of a replica of the model, the learning rates, the reader of results, the audit
// and the exchange. A Trainer made by New exchanges results of DisTrO. A Trainer made by NewLocal makes
// many steps of AdamW or Muon in a round, and sends how far the weights moved. AdamW trains a model
// without exchange, for comparison and for designing models. Evaluator only measures losses.
//
// All trainers compute gradients in the same way: they cut a batch into micro-batches and weight
// each by its tokens, so the gradient is the mean over the batch's tokens for any cut.
package train
