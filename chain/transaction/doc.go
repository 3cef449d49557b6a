// Package transaction makes and reads transactions of a Solana chain in the legacy format, and
// the instructions that a run needs: of the system program, of the compute budget, of the
// upgradeable loader, and of Psyche's own program.
//
//	message, err := transaction.Compile(payer, blockhash, instructions...)
//	signed, err := message.Sign(key)
//	raw, err := signed.Marshal()
//
// It knows no network and no clock.
package transaction
