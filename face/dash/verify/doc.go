// Package verify checks the log of a run where nobody is believed: in the browser of who looks at a page.
//
// The main type is Verifier. It takes the log's bytes as they arrive, checks the chain of hashes and every
// signature, and does again what each record did, as psyche run replay does. Close says how far it came and what
// it found; Show describes the run as the page does, from nothing but what was checked.
//
// The program in the folder wasm is this package behind four functions for JavaScript.
package verify
