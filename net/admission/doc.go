// Package admission keeps strangers from using up a server: Limiter bounds the connections that
// have not said yet who they are, or that are not part of a run, KeyLimits how often a key may act,
// and Budget what all of them may have in a second, shared between addresses. Network is what counts as
// one of these, and SeatNetwork is whose clients count together where seats of a run are bounded.
package admission
