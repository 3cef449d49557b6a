// Package assign says who does what in a round: which members witness, which train,
// and which batch of data each trainer gets.
//
// Everything follows from the round's two seeds and the number of members, so every
// participant computes the same answer without a message. The batch seed, which says who
// trains what, is known one round ahead; the other, which elects the witnesses, is not.
// The one source of order is the swap-or-not shuffle (Position), whose value for one index
// can be checked by anybody without computing the others.
//
//	witnesses := assign.Witnesses(round.Seed, len(round.Members), config.WitnessNodes)
//	batches := assign.Batches(round.BatchSeed, len(round.Members), config.VerificationPercent, round.DataIndex, round.BatchSize)
//
// A member's part can be proved to anybody who knows the round, without the others:
//
//	proof, ok := selection.Prove(member)
//	ok = selection.Verify(proof)
//
// Members are named by their index in the round's list of members.
package assign
