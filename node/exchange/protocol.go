package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"lukechampine.com/blake3"
)

// Protocols that clients answer for each other. docs/p2p.md documents their bytes.
const (
	RoundProtocol   = "/psyche/round/1"   // the announcements of a round
	ModelProtocol   = "/psyche/model/1"   // the manifest of a model
	ResultsProtocol = "/psyche/results/2" // the results counted between two models
	ReplicaProtocol = "/psyche/replica/1" // the replica hash after a step
)

// MaxAnnouncementSize is the maximum size of a signed announcement in bytes.
const MaxAnnouncementSize = 512

// maxAnnouncements is the maximum number of announcements of a round in one answer.
const maxAnnouncements = tally.MaxCandidates * coordinator.MaxClients

const (
	roundRequestSize = 4
	maxRoundResponse = 2 + maxAnnouncements*(2+MaxAnnouncementSize)

	modelRequestSize = 32

	resultsRequestSize = 4 + 4 + 32
	maxResultsResponse = 4 << 20 // bytes

	replicaRequestSize = 4
	replicaSize        = 32
)

// Reasons why a request is not answered, or an answer is not usable.
var (
	errMalformed = errors.New("malformed message")
	ErrNotHeld   = errors.New("not held here")
)

// Serve answers the requests of peers.
func (s *Store) Serve(network env.Requests) {
	network.Handle(RoundProtocol, roundRequestSize, s.Cache.answerRound)
	network.Handle(ModelProtocol, modelRequestSize, s.Cache.answerModel)
	network.Handle(ResultsProtocol, resultsRequestSize, s.History.answer)
	network.Handle(ReplicaProtocol, replicaRequestSize, s.History.answerReplica)
}

// AskRound requests the signed announcements that a peer has of a round.
func AskRound(ctx context.Context, network env.Requests, peer identity.ID, step uint32) ([][]byte, error) {
	request := binary.LittleEndian.AppendUint32(nil, step)
	response, err := network.Request(ctx, peer, RoundProtocol, request, maxRoundResponse)
	if err != nil {
		return nil, err
	}
	return decodeAnnouncements(response)
}

// AskModel requests the encoded manifest with a digest from a peer.
func AskModel(ctx context.Context, network env.Requests, peer identity.ID, digest [32]byte) ([]byte, error) {
	response, err := network.Request(ctx, peer, ModelProtocol, digest[:], checkpoint.MaxManifestSize)
	if err != nil {
		return nil, err
	}
	if blake3.Sum256(response) != digest {
		return nil, fmt.Errorf("%w: the manifest does not have the requested digest", errMalformed)
	}
	return response, nil
}

// AskResults requests the results counted in the steps later than after, up to until, starting from
// the model with that digest. The hash of the answer shows whether two peers give the same answer.
func AskResults(ctx context.Context, network env.Requests, peer identity.ID, after, until uint32, model [32]byte) (rounds []AppliedRound, answer [32]byte, err error) {
	response, err := network.Request(ctx, peer, ResultsProtocol, encodeResultsRequest(after, until, model), maxResultsResponse)
	if err != nil {
		return nil, answer, err
	}
	rounds, err = decodeApplied(response, after, until)
	return rounds, blake3.Sum256(response), err
}

// AskReplica requests the replica hash after a step from a peer. The answer is unverified. It is
// confirmed only if the results counted since then lead from it to a known hash.
func AskReplica(ctx context.Context, network env.Requests, peer identity.ID, step uint32) (replica [32]byte, err error) {
	request := binary.LittleEndian.AppendUint32(nil, step)
	response, err := network.Request(ctx, peer, ReplicaProtocol, request, replicaSize)
	if err != nil {
		return replica, err
	}
	if len(response) != replicaSize {
		return replica, fmt.Errorf("%w: a replica hash has %d bytes", errMalformed, len(response))
	}
	return [32]byte(response), nil
}
