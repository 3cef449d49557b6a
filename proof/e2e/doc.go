// Package e2e contains end-to-end tests of the two programs. They build both programs, start them
// as processes over loopback, kill them, and send them invalid or hostile input. They check event
// logs, the server's journal, checkpoints, exit codes and messages.
//
// The package has no code except its tests. They need a C compiler and libtorch, and are skipped
// without them, except if PSYCHE_REQUIRE_TORCH=1 is set.
package e2e
