package gossip

import (
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/net/p2p"
)

// Scores from which on a peer gets no gossip about messages, gets no messages, and is not
// listened to. Two things bring it there: p2p.Node.GraveScore, where a fault weighs 2 to 50 and
// halves every ten minutes, and the faults that the library itself sees.
const (
	gossipThreshold   = -80
	publishThreshold  = -160
	graylistThreshold = -320
)

// peerScore are the rules of the library's peer score. Nothing is gained by being active
// and nothing lost by being silent: a member that only witnesses says little.
func peerScore(n *p2p.Node) (*pubsub.PeerScoreParams, *pubsub.PeerScoreThresholds) {
	params := &pubsub.PeerScoreParams{
		Topics:               make(map[string]*pubsub.TopicScoreParams), // topics set theirs when they are joined
		SkipAtomicValidation: true,
		AppSpecificScore: func(p peer.ID) float64 {
			id, ok := p2p.Identity(p)
			if !ok {
				return graylistThreshold
			}
			return n.GraveScore(id)
		},
		AppSpecificWeight: 1,
		// Peers that break the rules of the mesh, such as joining again too soon. Many
		// members behind one address are no offence.
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

// topicScore are the rules for one topic: invalid messages count, nothing else does.
func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{
		SkipAtomicValidation:           true,
		TopicWeight:                    1,
		TimeInMeshQuantum:              time.Second,
		InvalidMessageDeliveriesWeight: -10,
		InvalidMessageDeliveriesDecay:  pubsub.ScoreParameterDecay(10 * time.Minute),
	}
}
