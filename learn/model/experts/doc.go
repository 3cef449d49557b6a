// Package experts implements feed-forward layers in which each token uses a few of many experts.
//
// [Router] chooses experts by their scores, in Go; a tie goes to the lower index. [Mix] adds up the
// outputs of the chosen experts for each token. Gradients flow through the factors that Mix gets.
package experts
