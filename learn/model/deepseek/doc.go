// Package deepseek implements the DeepSeek-V2 and DeepSeek-V3 architectures of Hugging Face's
// DeepseekV2ForCausalLM and DeepseekV3ForCausalLM (arXiv 2405.04434 and 2412.19437): attention over
// compressed keys and values, and feed-forward layers in which each token uses a few experts, and all
// tokens use some shared experts.
//
// The main type is [DeepSeek]. The order of calls is [ParseConfig] on a config.json,
// [Init] for new weights or a checkpoint's, [New] on an engine, then inside the engine's
// Do Loss and Backward, or Forward for logits. Parameters have the names of the
// checkpoint's tensors, with separate experts as in published checkpoints. Checkpoints with all experts
// of a layer in one tensor are also read.
//
// Go code chooses the experts of a token from the router's scores; a tie goes to the lower index.
// Gradients flow through the scores of the chosen experts.
package deepseek
