// Package exchange implements requests between members, apart from blobs: for the announcements of
// a round, the manifest of a model, and the results counted between two models. It also lets a
// trainer push a small result to the other members. protocol.go and push.go define the protocol
// IDs; docs/p2p.md documents the bytes.
//
// A Cache contains the announcements and manifests, a History the counted results. The loop of a
// client fills them, and the network's goroutines read them. Blobs tracks which blobs are still
// needed.
package exchange
