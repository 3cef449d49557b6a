// Package transaction encodes and decodes transactions of a Solana chain in the legacy format, and
// builds the instructions that a run needs: instructions of the system program, the compute budget,
// the upgradeable loader, and Psyche's own program.
//
//	message, err := transaction.Compile(payer, blockhash, instructions...)
//	signed, err := message.Sign(key)
//	raw, err := signed.Marshal()
//
// It uses no network and no clock.
//
// This package and package rpc exist because they are small: a program that makes three calls with
// github.com/gagliardetto/solana-go 1.14 links 31 modules and has 12.5 MB. With these packages it
// links three modules and has 9.6 MB. Tests compare this package with the output of solana-go, which
// the separate module in testdata/generate produces.
package transaction
