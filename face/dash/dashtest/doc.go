// Package dashtest generates logs of runs for tests of the dashboard. It uses real state machines
// and signed actions. Members can be late, silent or wrong, cheat or slander, or be ejected.
package dashtest
