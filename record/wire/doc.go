// Package wire defines the bytes that participants of a run sign and send: actions for
// the coordinator (SignedAction) and announcements of results to peers
// (ResultAnnouncement), and what its host signs of a run's log (Head).
//
// A message is
//
//	version  1 byte, 2
//	sender   32 bytes, ed25519 public key
//	signature 64 bytes, over version and body in the message's domain
//	body     hash of the run, then the fields in order; integers little endian
//
// and has exactly one encoding. Opening a message checks its size, then the signature,
// and only then reads the body, strictly:
//
//	raw := wire.SignAction(key, run, nonce, coordinator.Join{Epoch: 3})
//	signed, err := wire.OpenAction(raw, run)
//	err = state.Apply(coordinator.ClientID(signed.From), signed.Nonce, signed.Action)
//
// Runs are named by a hash: HostedRun, ChainRun. A name alone would let what was signed for one run
// count in another one of that name.
//
// The original bytes stay in SignedAction.Raw: whoever keeps or passes on an action
// keeps these, so that anybody can verify it again.
package wire
