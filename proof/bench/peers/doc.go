// Command peers trains one model on one text in the same order with this project and with what else one
// would take, and says who comes to a loss first, link by link. See README.md.
//
//	go run ./proof/bench/peers -python venv/bin/python3      # what rows.toml lists and logs/ lacks, then the tables
//	go run ./proof/bench/peers -only 'curve'                 # measurements whose name matches
//	go run ./proof/bench/peers -only '^$'                    # the tables and the picture, from the logs
//
// A system's loss over its exchanges is measured once (curve.go, and peers.py or hivemind_peer.py in three
// processes), its seconds an exchange once for each link, in real processes (network.go, torch.go), and once
// what happens when a process is killed (kill.go, killtorch.go). Tables (table.go) and the picture (picture.go)
// put these together.
package main
