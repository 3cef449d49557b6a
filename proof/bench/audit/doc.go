// Command audit measures what audits of training steps find: how far the gradients of honest
// trainers with different libraries are apart, what attackers look like beside them, how
// alike the results of honest trainers are, and what commitments cost.
//
//	go run ./proof/bench/audit calibrate --name first   # a run of all stacks; writes logs/first.jsonl.gz
//	go run ./proof/bench/audit table                    # tables from all logs
//	go run ./proof/bench/audit cost                     # processor time of commitments and checks
//	go run ./proof/bench/audit old                      # errors of audits that come later
//	go run ./proof/bench/audit values                   # loss with signs and with values, attacked
package main
