// Package verify checks the log of a run where nobody is believed: in the browser of who looks at a page.
//
// The main type is Verifier. It takes the log's bytes as they arrive, checks the chain of hashes and every
// signature, and repeats each record, as psyche run replay does. Report returns the result so far, and Close the
// result of a complete log. Show describes the run as the page does, from verified records only.
//
// The program in the folder wasm is this package behind a few functions for JavaScript.
package verify
