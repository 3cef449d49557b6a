// Package required estimates the memory, disk space and traffic that a run requires of a member,
// from the run's definition and the size of its model. Clients show the estimate before they join,
// and so does the web page of a run.
package required
