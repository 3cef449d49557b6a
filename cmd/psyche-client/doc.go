// Command psyche-client does what needs libtorch: it makes models, trains them in a run or
// alone, measures their loss, writes text with them, and moves them from and to the Hugging Face
// Hub and buckets.
//
//	psyche-client doctor
//	psyche-client init-model --config model.json --output model
//	psyche-client solo --model model --data-path data --optimizer distro --save out
//	psyche-client evaluate --model out --data data/heldout
//	psyche-client generate --model out --prompt "func main"
//	psyche-client serve-model --model out
//
// Each command is one file: an options struct, which is also its help text, and a Run
// method. Exit codes: 0 done, 1 failed, 2 wrong command line, 4 the run or its
// server refused, 5 the server cannot be reached or is not the right one, 130 interrupted.
package main
