package gossip

import (
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/net/p2p"
)

// Thresholds of the score. Below gossipThreshold a peer does not receive gossip about messages,
// below publishThreshold it does not receive our messages, and below graylistThreshold it is
// ignored. The score has two parts: p2p.Node.GraveScore, in which a fault costs 2 to 50 points,
// which halve every ten minutes, and the faults that the library itself detects.
const (
	gossipThreshold   = -80
	publishThreshold  = -160
	graylistThreshold = -320
)

// peerScore returns the parameters of the library's peer score. An active peer gains nothing and a
// silent one loses nothing, because a member that is only a witness sends little.
func peerScore(n *p2p.Node) (*pubsub.PeerScoreParams, *pubsub.PeerScoreThresholds) {
	params := &pubsub.PeerScoreParams{
		Topics:               make(map[string]*pubsub.TopicScoreParams), // set for each topic when it is joined
		SkipAtomicValidation: true,
		AppSpecificScore: func(p peer.ID) float64 {
			id, ok := p2p.Identity(p)
			if !ok {
				return graylistThreshold
			}
			return n.GraveScore(id)
		},
		AppSpecificWeight: 1,
		// This penalises peers that break the rules of the mesh, for example by rejoining too soon.
		// Many members behind one IP address are not a fault.
		BehaviourPenaltyWeight:    -1,
		BehaviourPenaltyThreshold: 6,
		BehaviourPenaltyDecay:     pubsub.ScoreParameterDecay(10 * time.Minute),
		DecayInterval:             time.Second,
		DecayToZero:               0.01,
		RetainScore:               10 * time.Minute,
	}
	return params, &pubsub.PeerScoreThresholds{
		SkipAtomicValidation: true,
		GossipThreshold:      gossipThreshold,
		PublishThreshold:     publishThreshold,
		GraylistThreshold:    graylistThreshold,
	}
}

// topicScore returns the parameters for one topic. Only invalid messages affect the score.
func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		SkipAtomicValidation:           true,
		TopicWeight:                    1,
		TimeInMeshQuantum:              time.Second,
		InvalidMessageDeliveriesWeight: -10,
		InvalidMessageDeliveriesDecay:  pubsub.ScoreParameterDecay(10 * time.Minute),
	}
}
