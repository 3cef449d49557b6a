// Command audit measures what audits of training steps find: how far the gradients of honest
// trainers with different libraries differ, how far the gradients of attackers do, and how
// similar the results of honest trainers are.
//
//	go run ./proof/bench/audit calibrate --name first   # a run of all stacks; writes logs/first.jsonl.gz
//	go run ./proof/bench/audit table                    # tables from all logs
package main
