// Package fetch downloads the results of peers. It decides which results to request, from which
// peers, when, and how long a slow peer may delay the other downloads.
//
// A Plan decides and has no side effects. Its inputs are the tallies of the rounds, the time, and
// the outcomes of earlier downloads. A Fetcher executes it:
//
//	fetcher.Fetch(open, terms) // starts the downloads that are due
//
// and enters verified results into the tallies. Fetch may be called after any event.
package fetch
