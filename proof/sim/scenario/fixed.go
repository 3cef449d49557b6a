package scenario

import (
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

// SeqLen is how many tokens a sequence has.
const SeqLen = 4

// ClockStart is the time at which every run begins.
var ClockStart = time.Unix(1_700_000_000, 0)

// RunID names every simulated run.
const RunID = "simulation"

// The host is that of package server, with its default times.
const (
	Beat  = second
	Grace = int64(core.DefaultGrace)
	// Heartbeat is how long a client sleeps at most.
	Heartbeat = second
)

// HostKey is the key of every simulated host.
var HostKey = func() identity.Key {
	var seed [identity.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], 1)
	return identity.FromSeed(seed)
}()

// HostID is who that is in states.
var HostID = coordinator.ClientID(HostKey.ID())
