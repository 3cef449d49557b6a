// Package hosting hosts a run on a user's own text with one call.
//
// Run prepares a folder: token files, the first model, and a state.toml from package files/recipe. It then
// starts the server and a client as processes, prints the invite link, and waits until the context ends.
// A call with the same options continues in the same folder: steps that are done are not repeated.
//
//	DIR/host.json   requested settings, and finished steps
//	DIR/data        token files
//	DIR/model       the first model
//	DIR/state.toml, DIR/data.toml
//	DIR/server      key, journal and log of the server
//	DIR/client      key, checkpoints and log of the host's own client
//	DIR/samples.json  after the run: texts of the first and of the last model
package hosting
