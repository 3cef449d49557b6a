// Package wire defines the bytes that participants of a run sign and send: actions for
// the coordinator (SignedAction) and announcements of results to peers
// (ResultAnnouncement).
//
// A message is
//
//	version  1 byte, 1
//	sender   32 bytes, ed25519 public key
//	signature 64 bytes, over version and body in the message's domain
//	body     length-prefixed run id, then the fields in order; integers little endian
//
// and has exactly one encoding. Opening a message checks its size, then the signature,
// and only then reads the body, strictly:
//
//	raw := wire.SignAction(key, runID, nonce, coordinator.Join{Epoch: 3})
//	signed, err := wire.OpenAction(raw, runID)
//	err = state.Apply(coordinator.ClientID(signed.From), signed.Nonce, signed.Action)
//
// The original bytes stay in SignedAction.Raw: whoever keeps or passes on an action
// keeps these, so that anybody can verify it again.
package wire
