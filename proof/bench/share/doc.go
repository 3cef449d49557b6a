// Command share measures the cost of rules about low-support chunks, and their frequency. It trains
// small models with real trainers on text with rare words, in which some chunks of embeddings and
// experts have a gradient in only a few members' batches.
//
//	go run ./proof/bench/share --model untied --seed 1
//
// The text is Go's source tree with one token per word: the 2047 most frequent words have their own
// tokens. At the end the command writes one line of JSON. The folder logs contains trials in which
// the learning rate of a chunk was multiplied by (s/n)^p, if s of n results sent anything in the
// chunk. Their label contains p.
package main
