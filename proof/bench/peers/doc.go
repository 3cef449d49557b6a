// Command peers compares this project with other systems for training over slow links. All train
// one model on one text in the same order, and the command reports the time until each reaches a
// given loss, for each link. See README.md.
//
//	go run ./proof/bench/peers -python venv/bin/python3      # rows of rows.toml without logs in logs/, then the tables
//	go run ./proof/bench/peers -only 'curve'                 # measurements whose name matches
//	go run ./proof/bench/peers -only '^$'                    # the tables and the picture, from the logs
//
// Three things are measured separately: a system's loss over its exchanges, once (curve.go, and
// peers.py or hivemind_peer.py in three processes); its seconds per exchange, once for each link,
// in real processes (network.go, torch.go); and the effect of killing a process, once (kill.go,
// killtorch.go). The tables (table.go) and the picture (picture.go) combine them.
package main
