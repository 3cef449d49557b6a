// Package assign determines the roles of members in a round: which members witness, which train,
// which batch of data each trainer gets, and the vote of its result.
//
// The roles depend only on the round's two seeds and the number of members, so all participants
// compute the same roles without communication. The batch seed, which draws the trainers and their
// batches, is known one round ahead. The other seed, which elects the witnesses, is not. All orders
// come from the swap-or-not shuffle (Position). Its value for one index can be verified without
// computing the others.
//
//	witnesses := assign.Witnesses(round.Seed, len(round.Members), config.WitnessNodes)
//	batches := assign.Batches(round.BatchSeed, len(round.Members), config.VerificationPercent, round.DataIndex, round.BatchSize, nil)
//
// A member is identified by its index in the round's list of members.
package assign
