// Package dashtest makes logs of runs for tests of what shows them: real state machines, signed
// actions, and members that are late, silent or wrong, cheat or slander, or are ejected.
package dashtest
