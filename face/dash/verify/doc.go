// Package verify checks the log of a run without trusting any server. It runs in the browser of a
// reader of the page.
//
// The main type is Verifier. It takes the log's bytes as they arrive, checks the hash chain and
// every signature, and replays each record, as psyche run replay does. Report returns the result so
// far, and Close the result of a complete log. Show describes the run as the page does, from
// verified records only.
//
// The program in the folder wasm exports this package to JavaScript.
package verify
