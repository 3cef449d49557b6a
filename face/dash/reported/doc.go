// Package reported shows what members say of their own training: loss, speed, memory, bytes,
// evaluations, payments. The coordinator knows none of that, and nobody signs it: it is read from
// the event logs of members that lie on the machine of whoever shows the run.
//
// A Board takes the events of any number of members of one run (See, or Follow for a file) and keeps
// bounded sums of them.
package reported
