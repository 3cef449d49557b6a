// Package wire implements the encoding of signed messages: actions for the coordinator
// (SignedAction), announcements of results to peers (ResultAnnouncement), and heads of a run's log,
// signed by its host (Head).
//
// A message is
//
//	version  1 byte, 2
//	sender   32 bytes, ed25519 public key
//	signature 64 bytes, over version and body in the message's domain
//	body     hash of the run, then the fields in order; integers little endian
//
// and has exactly one encoding. Opening a message checks its size and then its signature, before it
// decodes the body strictly:
//
//	raw := wire.SignAction(key, run, nonce, coordinator.Join{Epoch: 3})
//	signed, err := wire.OpenAction(raw, run)
//	err = state.Apply(coordinator.ClientID(signed.From), signed.Nonce, signed.Action)
//
// A hash identifies the run: HostedRun, ChainRun. With the run's name alone, a message signed for
// one run would be valid in another run of the same name.
//
// SignedAction.Raw contains the original bytes. Code that stores or forwards an action must use
// these bytes, so that the signature can be verified again.
package wire
