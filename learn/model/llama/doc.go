// Package llama is the Llama architecture of Hugging Face's LlamaForCausalLM: token
// embedding, blocks of grouped-query attention with rotary positions and a gated
// feed-forward layer, each behind an RMSNorm, and a linear head that may share the
// embedding's weights. Models that are told from it by few features, among them experts, are
// here too: file kinds.go lists them, and a file of each says in what it differs.
//
// The main type is [Llama]. The order of calls is [ParseConfig] on a config.json, [Init]
// for new weights or a checkpoint's, [New] on an engine, then inside the engine's Do
// Loss and Backward, or Forward for logits. Parameters carry the names of the
// checkpoint's tensors.
package llama
