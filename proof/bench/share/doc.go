// Command share trains small models with real trainers on text with rare words, where some chunks of
// embeddings and experts have a gradient in few members' batches only: it says what a rule about such
// chunks costs, and how often there are any.
//
//	go run ./proof/bench/share --model untied --seed 1
//
// The text is that of Go's source tree, a word a token: the 2047 most frequent words have their own.
// One line of JSON is written at the end. In logs are those of trials with (s/n)^p of the learning rate for
// a chunk in which s of n results sent anything; their label says p.
package main
