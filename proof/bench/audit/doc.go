// Command audit measures the accuracy and cost of audits of training steps: the distance between
// gradients of honest trainers with different libraries, the distance of attackers, the similarity
// of honest trainers' results, and the cost of commitments.
//
//	go run ./proof/bench/audit calibrate --name first   # a run of all stacks; writes logs/first.jsonl.gz
//	go run ./proof/bench/audit table                    # tables from all logs
//	go run ./proof/bench/audit cost                     # CPU time of commitments and checks
//	go run ./proof/bench/audit old                      # errors of delayed audits
//	go run ./proof/bench/audit values                   # loss with signs and with values, attacked
package main
