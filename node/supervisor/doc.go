// Package supervisor keeps a machine in one of several runs.
//
// A [Supervisor] checks its runs in order of preference, starts a client process for the first open run, and restarts
// a client that exits too early. It moves to another run if the current run is over, closed or idle. The caller defines
// how a run is checked and how a client is started; [Judge] evaluates the state of a run, and [Start] starts a process.
package supervisor
