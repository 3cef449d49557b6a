// Package required contains a limit on the memory that a run takes on a member's machine. Package memory predicts the
// whole memory.
package required

// MaxCopied is the largest size of weights, in bytes, for which members keep additional copies in memory: to continue
// before a round is decided, to serve them to other members, and until they are on the disk.
const MaxCopied = 1 << 30
