package coordinator

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/psyche-go/psyche/core/bloom"
)

// encodingVersion is the first byte of an encoded State.
const encodingVersion = 11

// Sizes of encoded parts.
const (
	filterSize  = bloom.Bits / 8
	clientSize  = 32 + 1 + 8 + 4 + 4 + 32 + 1 + 4 + 3 + 4 + 4 // and a digest if it reported one
	witnessSize = 2 + 2*filterSize + 32 + 32 + 2 + 4
	roundSize   = 4 + 4 + 8 + 8 + 8 + 4 + 2 + MaxClients/8 + 2 + 2 + 2 + 32 // without its lists
	configSize  = 8*6 + 8 + 4*4 + 2*3 + 1 + 4 + 2
	trialSize   = 1 + 32 + 32 + 4 + 1 + 4 + 8 + 3

	authorizationSize = 32 + 4 + 8 + 2 // without its delegates
	ejectionSize      = 32 + 4 + 1

	recordedSize = 4 + 32
	uploadSize   = 32 + 4 + 32 + 1 + 1 + 1 + 4 + 1 // without its texts
	lapseSize    = 4 + 4
)

// maxModelSize is that of a model with the longest names and the largest definition.
const maxModelSize = 4 + 4 + 1 + 1 + 1 + MaxRepoLength + 32 + 4 + 1 + 2 + MaxDefinitionSize

// MaxUpdateConfigSize is the largest number of bytes that UpdateConfig.AppendTo appends.
const MaxUpdateConfigSize = configSize + maxModelSize

// MaxStateSize is the largest number of bytes that AppendTo appends.
const MaxStateSize = 1 + 1 + MaxRunIDLength + 32 + 1 + 8 + configSize + maxModelSize +
	32 + 32 + 8 + 8 + 1 + 4 + 2 + MaxAuthorizations*(authorizationSize+MaxDelegates*32) + 2 + MaxEjections*ejectionSize +
	4 + 4 + 8 + // progress
	4 + 4 + 8 + 1 + 5*2 + recordedSize + // epoch and lengths of all lists
	4*MaxClients*(clientSize+32) + MaxClients*32 +
	1 + StoredRounds*(roundSize+MaxClients*32+MaxWitnesses*witnessSize) +
	8 + 3*32 + 8 + 4 +
	4 + 4*2 + MaxEarlier*recordedSize + MaxUploads*(uploadSize+MaxRepoLength) + MaxLapses*lapseSize + MaxTrials*trialSize

// AppendTo appends the canonical bytes of the state to b: a version byte, then every
// field in the order of declaration, integers little endian and of fixed width, lists
// and texts behind their lengths. Equal states have equal bytes.
func (s *State) AppendTo(b []byte) []byte {
	b = append(b, encodingVersion)
	b = appendText8(b, s.RunID)
	b = append(b, s.Host[:]...)
	b = s.Authority.appendTo(b)
	b = append(b, byte(s.RunState))
	b = le.AppendUint64(b, s.StateStart)
	b = s.Config.appendTo(b)
	b = s.Model.appendTo(b)
	b = le.AppendUint32(b, s.Progress.Epoch)
	b = le.AppendUint32(b, s.Progress.Step)
	b = le.AppendUint64(b, s.Progress.DataIndex)
	b = s.Epoch.appendTo(b)
	b = le.AppendUint64(b, s.MinimumSince)
	b = append(b, s.SeedChain[:]...)
	b = append(b, s.DrawCommitment[:]...)
	b = append(b, s.Reveals[:]...)
	b = le.AppendUint64(b, s.HostNonce)
	b = appendClients(b, s.Pending)
	b = appendClients(b, s.Departed)
	b = appendBool(b, s.PendingPause)
	b = appendBool(b, s.PendingResume)
	b = appendBool(b, s.ColdStart)
	b = appendBool(b, s.Closed)
	b = s.appendUploads(b)
	b = appendLength(b, len(s.Trials))
	for i := range s.Trials {
		b = s.Trials[i].appendTo(b)
	}
	return b
}

func (s *State) appendUploads(b []byte) []byte {
	b = le.AppendUint32(b, s.OriginStep)
	b = appendLength(b, len(s.Earlier))
	for _, r := range s.Earlier {
		b = le.AppendUint32(b, r.Step)
		b = append(b, r.Digest[:]...)
	}
	b = appendLength(b, len(s.Uploads))
	for i := range s.Uploads {
		u := &s.Uploads[i]
		b = append(b, u.Reporter[:]...)
		b = le.AppendUint32(b, u.Step)
		b = append(b, u.Digest[:]...)
		b = append(b, byte(u.Place.Kind))
		b = appendText8(b, u.Place.Repo)
		b = appendText8(b, u.Place.Revision)
		b = le.AppendUint32(b, u.Since)
		b = append(b, u.Tries)
	}
	b = appendLength(b, len(s.Lapses))
	for _, l := range s.Lapses {
		b = le.AppendUint32(b, l.First)
		b = le.AppendUint32(b, l.Last)
	}
	return b
}

// Hash returns the SHA-256 of the state's canonical bytes.
func (s *State) Hash() [32]byte { return sha256.Sum256(s.AppendTo(nil)) }

var le = binary.LittleEndian

// AppendTo appends the canonical bytes of configuration and model to b.
func (u *UpdateConfig) AppendTo(b []byte) []byte { return u.Model.appendTo(u.Config.appendTo(b)) }

func (a *Authority) appendTo(b []byte) []byte {
	b = append(b, a.Main[:]...)
	b = append(b, a.Join[:]...)
	b = le.AppendUint64(b, a.MainNonce)
	b = le.AppendUint64(b, a.JoinNonce)
	b = appendBool(b, a.Permissioned)
	b = le.AppendUint32(b, a.Grants)
	b = appendLength(b, len(a.Authorizations))
	for i := range a.Authorizations {
		x := &a.Authorizations[i]
		b = append(b, x.Grantee[:]...)
		b = le.AppendUint32(b, x.Number)
		b = le.AppendUint64(b, x.Nonce)
		b = appendIDs(b, x.Delegates)
	}
	b = appendLength(b, len(a.Ejections))
	for _, e := range a.Ejections {
		b = append(b, e.Client[:]...)
		b = le.AppendUint32(b, e.Until)
		b = append(b, byte(e.Reason))
	}
	return b
}

func (c *Config) appendTo(b []byte) []byte {
	b = le.AppendUint64(b, c.WarmupTime)
	b = le.AppendUint64(b, c.CooldownTime)
	b = le.AppendUint32(b, c.RoundsPerEpoch)
	b = le.AppendUint64(b, c.EpochTime)
	b = le.AppendUint64(b, c.MaxRoundTrainTime)
	b = le.AppendUint64(b, c.RoundWitnessTime)
	b = le.AppendUint64(b, c.WaitingForMembersExtraTime)
	b = le.AppendUint64(b, c.GlobalBatchSizeWarmupTokens)
	b = le.AppendUint32(b, c.GlobalBatchSizeStart)
	b = le.AppendUint32(b, c.GlobalBatchSizeEnd)
	b = le.AppendUint32(b, c.TotalSteps)
	b = le.AppendUint16(b, c.InitMinClients)
	b = le.AppendUint16(b, c.MinClients)
	b = le.AppendUint16(b, c.WitnessNodes)
	b = append(b, c.VerificationPercent)
	b = le.AppendUint32(b, c.ProbationSteps)
	return le.AppendUint16(b, c.EjectionEpochs)
}

func (m *Model) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.MaxSeqLen)
	b = le.AppendUint32(b, m.ColdStartWarmupSteps)
	b = append(b, byte(m.Checkpoint.Kind))
	b = appendText8(b, m.Checkpoint.Repo)
	b = appendText8(b, m.Checkpoint.Revision)
	b = append(b, m.Checkpoint.Digest[:]...)
	b = le.AppendUint32(b, m.Checkpoint.Step)
	b = append(b, byte(m.Checkpoint.Origin))
	b = appendLength(b, len(m.Definition))
	return append(b, m.Definition...)
}

func (e *Epoch) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, e.StartStep)
	b = le.AppendUint32(b, e.LastStep)
	b = le.AppendUint64(b, e.StartTime)
	b = appendBool(b, e.ColdStart)
	b = appendClients(b, e.Clients)
	b = appendClients(b, e.Exited)
	b = append(b, byte(len(e.Rounds)))
	for i := range e.Rounds {
		b = e.Rounds[i].appendTo(b)
	}
	b = appendIDs(b, e.Ready)
	b = le.AppendUint32(b, e.Commit.Step)
	return append(b, e.Commit.Digest[:]...)
}

func (t *Trial) appendTo(b []byte) []byte {
	b = append(b, t.Slot)
	b = append(b, t.Accused[:]...)
	b = append(b, t.Accuser[:]...)
	b = le.AppendUint32(b, t.Step)
	b = append(b, byte(t.Fault))
	b = le.AppendUint32(b, t.Since)
	b = le.AppendUint64(b, t.SinceTime)
	return append(b, t.Jurors, t.Guilty, t.Innocent)
}

func (r *Round) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, r.Height)
	b = le.AppendUint32(b, r.Step)
	b = le.AppendUint64(b, r.Seed)
	b = le.AppendUint64(b, r.BatchSeed)
	b = le.AppendUint64(b, r.DataIndex)
	b = le.AppendUint32(b, r.BatchSize)
	b = appendIDs(b, r.Members)
	b = append(b, r.Warming[:]...)
	b = le.AppendUint16(b, r.WitnessesNeeded)
	b = le.AppendUint16(b, r.WitnessesElected)
	b = appendLength(b, len(r.Witnesses))
	for i := range r.Witnesses {
		w := &r.Witnesses[i]
		b = le.AppendUint16(b, w.Member)
		b = appendFilter(b, &w.Participants)
		b = appendFilter(b, &w.Commitments)
		b = append(b, w.CommitmentsRoot[:]...)
		b = append(b, w.Replica[:]...)
		b = le.AppendUint16(b, w.Claim.Loss)
		b = le.AppendUint32(b, w.Claim.Speed)
	}
	return append(b, r.Challenge[:]...)
}

func appendClients(b []byte, clients []Client) []byte {
	b = appendLength(b, len(clients))
	for i := range clients {
		c := &clients[i]
		b = append(b, c.ID[:]...)
		b = append(b, byte(c.State))
		b = le.AppendUint64(b, c.Nonce)
		b = le.AppendUint32(b, c.ExitedHeight)
		b = le.AppendUint32(b, c.OptimizerSince)
		b = append(b, c.Commitment[:]...)
		b = append(b, flags(c.HoldsModel, c.Active)|byte(c.Lateness)<<2|flags(c.Waited, false)<<4|c.Returns<<5)
		b = le.AppendUint32(b, c.ProbationUntil)
		b = append(b, c.Juror, c.Voted, c.Complaints)
		b = le.AppendUint32(b, c.HoldsEarlier)
		if b = le.AppendUint32(b, c.Report.Step); c.Report.Step != 0 {
			b = append(b, c.Report.Digest[:]...)
		}
	}
	return b
}

func appendIDs(b []byte, ids []ClientID) []byte {
	b = appendLength(b, len(ids))
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

func appendFilter(b []byte, filter *bloom.Filter) []byte {
	for _, word := range filter {
		b = le.AppendUint64(b, word)
	}
	return b
}

func appendLength(b []byte, n int) []byte { return le.AppendUint16(b, uint16(n)) }

func appendText8(b []byte, text string) []byte {
	b = append(b, byte(len(text)))
	return append(b, text...)
}

func appendBool(b []byte, v bool) []byte { return append(b, flags(v, false)) }

func flags(bit0, bit1 bool) byte {
	var b byte
	if bit0 {
		b |= 1
	}
	if bit1 {
		b |= 2
	}
	return b
}
