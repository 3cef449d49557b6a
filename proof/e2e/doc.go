// Package e2e tests the two programs as people run them: it builds both, starts them as
// processes over loopback, kills them, feeds them what is wrong or hostile, and checks what
// they leave behind: event logs, the server's journal, checkpoints, exit codes and messages.
//
// It has no code but its tests. They need a C compiler and libtorch; without these they are
// skipped, except when PSYCHE_REQUIRE_TORCH=1 is set.
package e2e
