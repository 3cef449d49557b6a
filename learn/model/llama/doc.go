// Package llama implements the Llama architecture of Hugging Face's LlamaForCausalLM: token embedding,
// blocks of grouped-query attention with rotary positions and a gated feed-forward layer, each behind
// an RMSNorm, and a linear head that may share the embedding's weights. It also implements models that
// differ from Llama by few features, such as experts. File kinds.go lists them, and each has a file
// that describes its differences.
//
// The main type is [Llama]. The order of calls is [ParseConfig] on a config.json, [Init]
// for new weights or a checkpoint's, [New] on an engine, then inside the engine's Do
// Loss and Backward, or Forward for logits. Parameters have the names of the checkpoint's tensors.
package llama
