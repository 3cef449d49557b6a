package assign

// saltJury separates the jury shuffle from the other shuffles of a round's seed.
const saltJury = "jury"

// Jury returns the members of a round in the order in which they are called to a jury.
func Jury(seed uint64, members int) []int {
	if members <= 0 {
		return nil
	}
	return inOrder(uint32(members), seed, saltJury)
}
