// Package dashtest makes logs of runs for tests of what shows them: real state machines, signed
// actions, and members that are late, silent, wrong, or ejected.
package dashtest
