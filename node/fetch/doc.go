// Package fetch gets the results of peers: whose is asked for, of whom, when, and how long
// one may keep others waiting.
//
// A Plan decides that and does nothing: it is fed with the tallies of the rounds, the time,
// and what came of earlier fetches. A Fetcher carries it out:
//
//	fetcher.Fetch(open, terms) // starts what should be on its way now
//
// and enters into them what arrived and is valid. It may be called after any event.
package fetch
