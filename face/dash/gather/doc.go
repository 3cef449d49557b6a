// Package gather finds the data for the dashboard: logs of runs in files and folders, as they
// appear, and event logs of members.
//
// A Gatherer follows each log that is added (Add) or found (Watch), until Close. Its method Runs is
// the argument of dash.New.
package gather
