// Package deepseek is the DeepSeek-V2 and DeepSeek-V3 architectures of Hugging Face's
// DeepseekV2ForCausalLM and DeepseekV3ForCausalLM (arXiv 2405.04434 and 2412.19437):
// attention over compressed keys and values, and feed-forward layers of which each token
// uses a few experts and those that all tokens share.
//
// The main type is [DeepSeek]. The order of calls is [ParseConfig] on a config.json,
// [Init] for new weights or a checkpoint's, [New] on an engine, then inside the engine's
// Do Loss and Backward, or Forward for logits. Parameters carry the names of the
// checkpoint's tensors, with the experts apart as published checkpoints have them; those
// that hold all experts of a layer in one tensor are read too.
//
// Which experts a token uses is decided in Go from the router's scores, ties going to the
// lower index; gradients flow through the scores of the chosen ones.
package deepseek
