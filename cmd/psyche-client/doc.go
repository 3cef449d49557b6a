// Command psyche-client contains everything that needs libtorch. It creates models, trains them in
// a run or alone, measures their loss, generates text, and transfers models to and from the Hugging
// Face Hub and buckets.
//
//	psyche-client doctor
//	psyche-client init-model --config model.json --output model
//	psyche-client solo --model model --data-path data --optimizer distro --save out
//	psyche-client evaluate --model out --data data/heldout
//	psyche-client generate --model out --prompt "func main"
//	psyche-client serve-model --model out
//
// Each command is one file, with a struct of options, which also defines the help text, and a Run
// method.
//
// Exit codes: 0 success, 1 failure, 2 wrong command line, 4 the run or its server refused, 5 the
// server cannot be reached or is not the expected one, 130 interrupted.
package main
