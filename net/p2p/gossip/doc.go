// Package gossip broadcasts small signed messages to the members of a run.
//
// A Topic is a gossipsub topic with strict signatures. Every message names its author. A node drops
// a message whose author is not in its member list, or that its handler rejects.
//
// Delivery is best effort. A node that joins later does not receive earlier messages, so state that
// must not be lost must also be available for fetching (Node.Request, package blob). Publishing the
// same bytes again reaches members that missed them, and does not run a handler twice for the same
// message. If the streams between connected members are lost, the members recover within seconds.
//
// Order of calls: p2p.New; Join; Node.SetMembers; Publish; Close.
//
//	topic, err := gossip.Join(ctx, node, "run/"+runID, func(from identity.ID, data []byte) error { … })
//	err = topic.Publish(ctx, announcement)
package gossip
