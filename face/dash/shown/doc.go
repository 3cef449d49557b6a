// Package shown describes a run for the page, as its log tells it: figures, curves, members, trials, what
// happened. Both the page's program and the verifier in a browser make the same description of the same log.
package shown
