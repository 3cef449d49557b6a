package exchange

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

const historyEpochs = 3 // the running epoch and the two before it

// History contains the newest rounds that became part of the model, in whole epochs. Members that
// were away fetch these results instead of the model. Results of earlier epochs are kept only while
// they take fewer bytes than the model. If the running epoch is too large, only its rounds since
// the intermediate checkpoint are kept: members can load that checkpoint and apply these rounds. The
// loop fills a History, and the network's goroutines read it.
type History struct {
	mu     sync.Mutex
	rounds []AppliedRound // in ascending order of steps without gaps
	model  uint64         // bytes of the model
	memory uint64         // maximum bytes of the running epoch's results
	skip   uint32         // start step of an epoch that is too large to be kept; 0: none
	commit uint32         // step of the running epoch's newest intermediate checkpoint; 0: none
}

// push adds the next round and returns the hashes of the results that are no longer kept.
func (h *History) push(round AppliedRound) (dropped [][32]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.rounds) - 1; last >= 0 && h.rounds[last].Step+1 != round.Step {
		dropped = h.cut(len(h.rounds))
	}
	if round.EpochStart == h.skip {
		return append(dropped, hashesOf(round)...)
	}
	h.rounds = append(h.rounds, round)
	for len(h.rounds) > 0 && !h.fits() {
		dropped = append(dropped, h.cut(h.least(round.EpochStart))...)
	}
	return dropped
}

// least returns how many of the oldest rounds are dropped together. These are all rounds of the
// oldest epoch. If that is the running epoch, they are its rounds up to the intermediate checkpoint;
// without one, all its rounds are dropped, and the next ones are not kept.
func (h *History) least(running uint32) int {
	oldest := h.rounds[0].EpochStart
	if oldest == running {
		if first := h.rounds[0].Step; h.commit >= first {
			return min(int(h.commit-first)+1, len(h.rounds))
		}
		h.skip = oldest
	}
	end := slices.IndexFunc(h.rounds, func(r AppliedRound) bool { return r.EpochStart != oldest })
	if end < 0 {
		end = len(h.rounds)
	}
	return end
}

// Committed records the step of the running epoch's newest intermediate checkpoint; 0: none. If the
// epoch was too large to be kept from its start, it is kept from the next round on.
func (h *History) Committed(step uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if step != h.commit && step >= h.skip {
		h.skip = 0
	}
	h.commit = step
}

// fits reports whether the kept rounds are within all limits.
func (h *History) fits() bool {
	limit := h.memory
	epochs := h.epochs()
	if epochs > 1 {
		limit = min(limit, h.model)
	}
	return epochs <= historyEpochs && len(h.rounds) <= maxResultsRounds && TotalSize(h.rounds) <= limit
}

// epochs returns the number of epochs with kept rounds.
func (h *History) epochs() (count int) {
	for i, round := range h.rounds {
		if i == 0 || round.EpochStart != h.rounds[i-1].EpochStart {
			count++
		}
	}
	return count
}

// cut drops the count oldest rounds and returns the hashes of their results.
func (h *History) cut(count int) (dropped [][32]byte) {
	for _, round := range h.rounds[:count] {
		dropped = append(dropped, hashesOf(round)...)
	}
	h.rounds = slices.Clone(h.rounds[count:])
	return dropped
}

// reset clears the history and returns the hashes of its results. model is the size of the model in
// bytes, and memory the maximum size of the running epoch's results.
func (h *History) reset(model, memory uint64) (dropped [][32]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.model, h.memory, h.skip = model, memory, 0
	return h.cut(len(h.rounds))
}

// eachBlob calls do for the hash of each kept result.
func (h *History) eachBlob(do func(hash [32]byte)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, round := range h.rounds {
		for _, r := range round.Results {
			do(r.Commitment)
		}
	}
}

func hashesOf(round AppliedRound) [][32]byte {
	hashes := make([][32]byte, len(round.Results))
	for i, r := range round.Results {
		hashes[i] = r.Commitment
	}
	return hashes
}

// answer returns the results between two models.
func (h *History) answer(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != resultsRequestSize {
		return nil, fmt.Errorf("%w: request for results has %d bytes, want %d", errMalformed, len(request), resultsRequestSize)
	}
	after, until := binary.LittleEndian.Uint32(request), binary.LittleEndian.Uint32(request[4:])
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.rounds) == 0 || after >= until || h.rounds[0].Step > after+1 || h.rounds[len(h.rounds)-1].Step < until {
		return nil, fmt.Errorf("%w: results after step %d up to step %d", ErrNotHeld, after, until)
	}
	first := after + 1 - h.rounds[0].Step
	if oldest := h.rounds[first]; oldest.EpochStart == oldest.Step && oldest.From != [32]byte(request[8:]) {
		return nil, fmt.Errorf("%w: results since the requested model of step %d", ErrNotHeld, after)
	}
	encoded := encodeApplied(h.rounds[first : first+until-after])
	if len(encoded) > maxResultsResponse {
		return nil, fmt.Errorf("%w: results after step %d up to step %d in one answer", ErrNotHeld, after, until)
	}
	return encoded, nil
}

// answerReplica returns the replica hash after a step.
func (h *History) answerReplica(_ context.Context, _ identity.ID, request []byte) ([]byte, error) {
	if len(request) != replicaRequestSize {
		return nil, fmt.Errorf("%w: request for a replica hash has %d bytes, want %d", errMalformed, len(request), replicaRequestSize)
	}
	step := binary.LittleEndian.Uint32(request)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.rounds {
		if r := &h.rounds[i]; r.Step == step+1 && r.Before != [32]byte{} {
			return r.Before[:], nil
		}
	}
	return nil, fmt.Errorf("%w: the replica hash after step %d", ErrNotHeld, step)
}
