package scenario

import (
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
)

// SeqLen is the number of tokens in a sequence.
const SeqLen = 4

// ClockStart is the start time of every run.
var ClockStart = time.Unix(1_700_000_000, 0)

// RunID is the id of every simulated run.
const RunID = "simulation"

// The times of the host are the defaults of package server.
const (
	Beat  = second
	Grace = int64(core.DefaultGrace)
	// Heartbeat is the maximum sleep of a client.
	Heartbeat = second
)

// HostKey is the key of every simulated host.
var HostKey = func() identity.Key {
	var seed [identity.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], 1)
	return identity.FromSeed(seed)
}()

// HostID is the host's id in states.
var HostID = coordinator.ClientID(HostKey.ID())
