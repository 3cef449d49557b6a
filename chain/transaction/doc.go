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
// This package and package rpc are Psyche's own code because of size: three calls with
// github.com/gagliardetto/solana-go 1.14 link 31 modules into a program of 12.5 MB, these packages
// three into 9.6 MB. Tests compare this package with the output of solana-go; the separate module
// in testdata/generate produces it.
package transaction
