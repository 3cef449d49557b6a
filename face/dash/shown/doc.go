// Package shown converts a run's history to the page's description: metrics, curves, members,
// trials and events. The page's server and the verifier in a browser make the same description of
// the same log.
package shown
