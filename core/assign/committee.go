package assign

// VerifierCount returns the number of members of a round that do not train: verificationPercent of
// them, rounded down, but at least one member trains.
func VerifierCount(members, verificationPercent int) int {
	return max(0, nonTrainers(members, verificationPercent))
}

func nonTrainers(members, verificationPercent int) int {
	percent := max(0, min(verificationPercent, 100))
	return min(members*percent/100, members-1)
}

func electedWitnesses(members, witnessNodes int) int {
	if witnessNodes <= 0 {
		witnessNodes = maxWitnesses
	}
	return min(members, witnessNodes)
}
