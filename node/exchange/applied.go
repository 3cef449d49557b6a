package exchange

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/tally"
)

const (
	appliedRoundSize  = 4 + 4 + 2
	appliedResultSize = 8 + 8 + 32 + 32 + 4 + 1
	maxResultsRounds  = 4096
)

// ListSize returns the size in bytes of the list of counted results for ResultsProtocol, if every
// round has the given number of results.
func ListSize(rounds uint32, results int) uint64 {
	return min(uint64(rounds)*(appliedRoundSize+uint64(results)*appliedResultSize), maxResultsResponse)
}

// AppliedRound is a round whose results became part of the model.
type AppliedRound struct {
	Step       uint32
	EpochStart uint32   // first step of its epoch
	ColdSteps  uint32   // length of the epoch's cold start in steps; 0: none
	From       [32]byte // digest of the model that its epoch started with; not sent
	Before     [32]byte // replica hash before it, zero if unknown; not sent
	Results    []AppliedResult
}

// AppliedResult is a counted result and its trainer.
type AppliedResult struct {
	tally.Counted
	Owner coordinator.ClientID
	Size  uint32
}

// Replica returns the replica hash after the round. before is the hash before the round.
func (r *AppliedRound) Replica(before [32]byte) [32]byte {
	return tally.ExtendReplica(before, r.Step, r.counted())
}

// Votes returns the vote of each result.
func (r *AppliedRound) Votes() []uint8 { return tally.VotesOf(r.counted()) }

func (r *AppliedRound) counted() []tally.Counted {
	counted := make([]tally.Counted, len(r.Results))
	for i := range r.Results {
		counted[i] = r.Results[i].Counted
	}
	return counted
}

// TotalSize returns the size in bytes of all results of the rounds.
func TotalSize(rounds []AppliedRound) (size uint64) {
	for _, round := range rounds {
		for _, r := range round.Results {
			size += uint64(r.Size)
		}
	}
	return size
}

func encodeResultsRequest(after, until uint32, from [32]byte) []byte {
	b := make([]byte, 0, resultsRequestSize)
	b = binary.LittleEndian.AppendUint32(b, after)
	b = binary.LittleEndian.AppendUint32(b, until)
	return append(b, from[:]...)
}

// encodeApplied encodes rounds without their steps, which the request determines.
func encodeApplied(rounds []AppliedRound) []byte {
	var b []byte
	for _, round := range rounds {
		b = binary.LittleEndian.AppendUint32(b, round.EpochStart)
		b = binary.LittleEndian.AppendUint32(b, round.ColdSteps)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(round.Results)))
		for _, r := range round.Results {
			b = binary.LittleEndian.AppendUint64(b, r.Batch.Start)
			b = binary.LittleEndian.AppendUint64(b, r.Batch.End)
			b = append(b, r.Owner[:]...)
			b = append(b, r.Commitment[:]...)
			b = binary.LittleEndian.AppendUint32(b, r.Size)
			b = append(b, r.Vote)
		}
	}
	return b
}

// decodeApplied decodes the rounds after the step after, up to the step until. It does not check
// whether the results exist.
func decodeApplied(b []byte, after, until uint32) ([]AppliedRound, error) {
	if after >= until || until-after > maxResultsRounds || until == math.MaxUint32 || len(b) > maxResultsResponse {
		return nil, fmt.Errorf("%w: %d bytes for the results after step %d up to step %d", errMalformed, len(b), after, until)
	}
	var rounds []AppliedRound
	for step := after + 1; step <= until; step++ {
		if len(b) < appliedRoundSize {
			return nil, fmt.Errorf("%w: the results of step %d are missing", errMalformed, step)
		}
		round := AppliedRound{
			Step: step, EpochStart: binary.LittleEndian.Uint32(b), ColdSteps: binary.LittleEndian.Uint32(b[4:]),
		}
		count := int(binary.LittleEndian.Uint16(b[8:]))
		b = b[appliedRoundSize:]
		if count > coordinator.MaxClients || count*appliedResultSize > len(b) || round.EpochStart > step {
			return nil, fmt.Errorf("%w: step %d claims %d results and an epoch from step %d", errMalformed, step, count, round.EpochStart)
		}
		end := uint64(0)
		for range count {
			r := AppliedResult{
				Counted: tally.Counted{
					Batch:      assign.BatchID{Start: binary.LittleEndian.Uint64(b), End: binary.LittleEndian.Uint64(b[8:])},
					Commitment: tally.Commitment(b[48:80]),
					Vote:       b[84],
				},
				Owner: coordinator.ClientID(b[16:48]),
				Size:  binary.LittleEndian.Uint32(b[80:]),
			}
			if r.Batch.Start < end || r.Batch.End <= r.Batch.Start {
				return nil, fmt.Errorf("%w: batch %v of step %d is out of order", errMalformed, r.Batch, step)
			}
			if r.Vote < 1 || r.Vote > assign.FullVote {
				return nil, fmt.Errorf("%w: batch %v of step %d has a vote of %d, want 1 to %d", errMalformed, r.Batch, step, r.Vote, assign.FullVote)
			}
			end = r.Batch.End
			round.Results = append(round.Results, r)
			b = b[appliedResultSize:]
		}
		rounds = append(rounds, round)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the results", errMalformed, len(b))
	}
	return rounds, nil
}
