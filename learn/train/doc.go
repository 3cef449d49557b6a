// Package train turns batches of tokens into changes of a model's weights.
//
// Trainer is the trainer of a run. For each step its owner calls
//
//	payload, loss, err := trainer.Train(ctx, step, batch, nil) // own share: gradient to result
//	err = trainer.Verify(payload, step, id, key)               // others' results, concurrently
//	err = trainer.Apply(ctx, step, payloads, ownCounted)       // everything that counted
//
// and Snapshot, Load and ResetOptimizer between epochs. Replicas that were given the same
// payloads hold the same weights, bit for bit: weights change in Apply only, by what
// everybody has. What a trainer knows alone, its momentum, lives in buffers of its own.
//
// LocalTrainer is one that makes many steps of AdamW or Muon by itself between two exchanges.
//
// AdamW trains a model alone, for comparison and for those who design models. Evaluator
// only measures losses.
//
// Trainers compute gradients in the same way: a batch is cut into micro-batches, each
// weighted by its tokens, so that the gradient is the mean over the batch's tokens
// however it was cut.
package train
