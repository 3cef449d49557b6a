// Command psyche hosts and prepares training runs. It contains the server of runs, their
// administration and audit, data sets, keys, local test networks and the simulator. It needs no
// libtorch and no cgo. The program for training is psyche-client.
//
// Every command is a struct of flags with a Run method, in a separate file. main.go lists the
// commands.
//
// Exit codes:
//
//   - 0: the command succeeded, or a server was stopped by a signal
//   - 1: the command failed
//   - 2: the command line is wrong
//   - 3: a configuration file is wrong
//   - 4: the run's rules or its server refused
//   - 5: the server cannot be reached, or has an unexpected key
//   - 6: the log of a run does not verify
//   - 8: the run of a testnet is over, but some clients lack its final model, or the run recorded
//     none
//   - 9: the clients of a testnet ended with different models
//   - 130: a signal interrupted the command
package main
