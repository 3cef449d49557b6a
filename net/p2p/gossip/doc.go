// Package gossip spreads small signed messages among the members of a run.
//
// A Topic is a gossipsub topic with strict signatures: every message names its author
// and is dropped on its way unless the author is a member of the receiving node's list and
// the handler finds nothing wrong with it.
// Delivery is best effort. A node that joins later does not see what was sent before, so
// state that must not be lost is fetched (Node.Request, package blob), never only
// gossiped; publishing the same bytes again reaches those who missed them, and nobody's
// handler runs twice for it. Members that are connected find each other again within
// seconds after the streams between them were lost.
//
// Order of calls: p2p.New; Join; Node.SetMembers; Publish; Close.
//
//	topic, err := gossip.Join(ctx, node, "run/"+runID, func(from identity.ID, data []byte) error { … })
//	err = topic.Publish(ctx, announcement)
package gossip
