package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// The protocol by which a member that was away learns which results were counted
// meanwhile. Integers are little-endian.
const (
	// Request: step after which the asking member has the model u32, step after which it
	// wants it u32, digest of the model it has [32]byte. A run that lost an epoch's model
	// goes on from an earlier one, and the same step is then another model: only members
	// that were with this one answer. Response: for every step between, ascending, the
	// epoch's start step u32, the steps of its cold start u32, the number of counted results u16, then each:
	// batch start u64, batch end u64, trainer [32]byte, blob [32]byte, size u32.
	resultsProtocol    = "/psyche/results/1"
	resultsRequestSize = 4 + 4 + 32

	appliedRoundSize   = 4 + 4 + 2
	appliedResultSize  = 8 + 8 + 32 + 32 + 4
	maxResultsRounds   = 4096
	maxResultsResponse = 4 << 20 // bytes

	historyEpochs = 3 // the running one and two before it
)

// appliedRound is a round that became part of the model.
type appliedRound struct {
	step       uint32
	epochStart uint32   // first step of its epoch
	coldSteps  uint32   // of the epoch's cold start; 0: none
	from       [32]byte // digest of the model that its epoch began with; not sent
	results    []appliedResult
}

// appliedResult is a counted result and where it came from.
type appliedResult struct {
	countedResult
	owner coordinator.ClientID
	size  uint32
}

// totalSize returns the bytes of all results of the rounds.
func totalSize(rounds []appliedRound) (size uint64) {
	for _, round := range rounds {
		for _, r := range round.results {
			size += uint64(r.size)
		}
	}
	return size
}

// history remembers the newest rounds that became part of the model, whole epochs of
// them, as long as their results have fewer bytes than the limit: members that were away
// fetch these instead of the model. The loop fills it, the network's goroutines read it.
type history struct {
	mu     sync.Mutex
	rounds []appliedRound // ascending steps without a gap
	limit  uint64         // bytes of results
	skip   uint32         // start step of an epoch that is too large to be kept; 0: none
}

// push adds the next round and returns the results that are not kept any more.
func (h *history) push(round appliedRound) (dropped [][32]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.rounds) - 1; last >= 0 && h.rounds[last].step+1 != round.step {
		dropped = h.cut(len(h.rounds))
	}
	if round.epochStart == h.skip {
		return append(dropped, hashesOf(round)...)
	}
	h.rounds = append(h.rounds, round)
	for len(h.rounds) > 0 && (h.epochs() > historyEpochs || len(h.rounds) > maxResultsRounds || totalSize(h.rounds) > h.limit) {
		oldest := h.rounds[0].epochStart
		if oldest == round.epochStart {
			h.skip = oldest
		}
		end := slices.IndexFunc(h.rounds, func(r appliedRound) bool { return r.epochStart != oldest })
		if end < 0 {
			end = len(h.rounds)
		}
		dropped = append(dropped, h.cut(end)...)
	}
	return dropped
}

// epochs counts the epochs of which rounds are kept.
func (h *history) epochs() (count int) {
	for i, round := range h.rounds {
		if i == 0 || round.epochStart != h.rounds[i-1].epochStart {
			count++
		}
	}
	return count
}

// cut forgets the oldest rounds and returns their results.
func (h *history) cut(count int) (dropped [][32]byte) {
	for _, round := range h.rounds[:count] {
		dropped = append(dropped, hashesOf(round)...)
	}
	h.rounds = slices.Clone(h.rounds[count:])
	return dropped
}

// reset forgets everything, keeps at most limit bytes from now on and returns the results
// that are not kept any more.
func (h *history) reset(limit uint64) (dropped [][32]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit, h.skip = limit, 0
	return h.cut(len(h.rounds))
}

// eachBlob calls do for the hash of each result that is kept.
func (h *history) eachBlob(do func(hash [32]byte)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, round := range h.rounds {
		for _, r := range round.results {
			do(r.commitment)
		}
	}
}

func hashesOf(round appliedRound) [][32]byte {
	hashes := make([][32]byte, len(round.results))
	for i, r := range round.results {
		hashes[i] = r.commitment
	}
	return hashes
}

// answer lists the results between two models.
func (h *history) answer(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != resultsRequestSize {
		return nil, fmt.Errorf("%w: request for results of %d bytes, want %d", errMalformed, len(request), resultsRequestSize)
	}
	after, until := binary.LittleEndian.Uint32(request), binary.LittleEndian.Uint32(request[4:])
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.rounds) == 0 || after >= until || h.rounds[0].step > after+1 || h.rounds[len(h.rounds)-1].step < until {
		return nil, fmt.Errorf("%w: results of the steps after %d until %d", errNotHeld, after, until)
	}
	first := after + 1 - h.rounds[0].step
	if oldest := h.rounds[first]; oldest.epochStart == oldest.step && oldest.from != [32]byte(request[8:]) {
		return nil, fmt.Errorf("%w: results since that model of step %d", errNotHeld, after)
	}
	encoded := encodeApplied(h.rounds[first : first+until-after])
	if len(encoded) > maxResultsResponse {
		return nil, fmt.Errorf("%w: results of the steps after %d until %d in one answer", errNotHeld, after, until)
	}
	return encoded, nil
}

func encodeResultsRequest(after, until uint32, from [32]byte) []byte {
	b := make([]byte, 0, resultsRequestSize)
	b = binary.LittleEndian.AppendUint32(b, after)
	b = binary.LittleEndian.AppendUint32(b, until)
	return append(b, from[:]...)
}

// encodeApplied packs rounds; their steps are what was asked for.
func encodeApplied(rounds []appliedRound) []byte {
	var b []byte
	for _, round := range rounds {
		b = binary.LittleEndian.AppendUint32(b, round.epochStart)
		b = binary.LittleEndian.AppendUint32(b, round.coldSteps)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(round.results)))
		for _, r := range round.results {
			b = binary.LittleEndian.AppendUint64(b, r.batch.Start)
			b = binary.LittleEndian.AppendUint64(b, r.batch.End)
			b = append(b, r.owner[:]...)
			b = append(b, r.commitment[:]...)
			b = binary.LittleEndian.AppendUint32(b, r.size)
		}
	}
	return b
}

// decodeApplied unpacks the rounds after one step until another. Whether anybody ever
// trained these results is not looked at.
func decodeApplied(b []byte, after, until uint32) ([]appliedRound, error) {
	if after >= until || until-after > maxResultsRounds || until == math.MaxUint32 || len(b) > maxResultsResponse {
		return nil, fmt.Errorf("%w: %d bytes for the steps after %d until %d", errMalformed, len(b), after, until)
	}
	var rounds []appliedRound
	for step := after + 1; step <= until; step++ {
		if len(b) < appliedRoundSize {
			return nil, fmt.Errorf("%w: the results of step %d are missing", errMalformed, step)
		}
		round := appliedRound{
			step: step, epochStart: binary.LittleEndian.Uint32(b), coldSteps: binary.LittleEndian.Uint32(b[4:]),
		}
		count := int(binary.LittleEndian.Uint16(b[8:]))
		b = b[appliedRoundSize:]
		if count > coordinator.MaxClients || count*appliedResultSize > len(b) || round.epochStart > step {
			return nil, fmt.Errorf("%w: step %d claims %d results and an epoch from step %d", errMalformed, step, count, round.epochStart)
		}
		end := uint64(0)
		for range count {
			r := appliedResult{
				countedResult: countedResult{
					batch:      assign.BatchID{Start: binary.LittleEndian.Uint64(b), End: binary.LittleEndian.Uint64(b[8:])},
					commitment: commitment(b[48:80]),
				},
				owner: coordinator.ClientID(b[16:48]),
				size:  binary.LittleEndian.Uint32(b[80:]),
			}
			if r.batch.Start < end || r.batch.End <= r.batch.Start {
				return nil, fmt.Errorf("%w: batch %v of step %d is out of order", errMalformed, r.batch, step)
			}
			end = r.batch.End
			round.results = append(round.results, r)
			b = b[appliedResultSize:]
		}
		rounds = append(rounds, round)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the results", errMalformed, len(b))
	}
	return rounds, nil
}
