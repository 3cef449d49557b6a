// Package experts is what models have in common of whose feed-forward layers each token uses a
// few experts.
//
// [Router] chooses by scores, in Go, ties going to the lower index; [Mix] adds up what the chosen
// ones make of a token. Gradients flow through the factors that Mix gets.
package experts
