// Package console describes a member's work to its user, from the member's own events: [Rounds] logs one line per round,
// and [Account] sums up the contribution when the process ends.
package console
