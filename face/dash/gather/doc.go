// Package gather finds what a page shows: logs of runs in files and folders, as they appear, and the
// event logs of members.
//
// A Gatherer follows each log that it is told of (Add) or that it finds (Watch), until Close. Runs
// is what package dash wants.
package gather
