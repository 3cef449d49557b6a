// Package exchange is what members may ask each other for at any time, beside blobs: the
// announcements of a round, the manifest of a model, and what was counted between two
// models. And it is how a trainer brings the others a small result unasked. protocol.go and
// push.go name the protocols; their bytes are documented in docs/p2p.md.
//
// A Shelf has the announcements and manifests, a History the counted results. The loop of a
// client fills them, the network's goroutines read them. Blobs knows which blobs are still
// needed for any of that.
package exchange
