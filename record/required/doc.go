// Package required works out what taking part in a run takes of a machine, from the run's definition and
// the size of its model: what a client says before it joins, and the page of a run to who thinks of it.
package required
