// Package reported collects the data that members report about their training: loss, speed, memory,
// bytes, evaluations, payments. The coordinator does not know this data, and it is not signed. It
// comes from the members' event logs on the machine that shows the run.
//
// A Board processes the events of any number of members of one run (See, or Follow for a file) and
// keeps bounded summaries.
package reported
