package core

import "time"

// Outlook decides whether speculation is worthwhile. The zero value begins an epoch.
type Outlook struct {
	Took     time.Duration // newest time to apply the results of a round
	Trains   time.Duration // duration of the newest training, without waiting
	Mistakes int           // mispredicted outcomes in this epoch
	Wait     time.Duration // newest time from a round's last result to the end of the round
	from     uint32        // first step of the next attempt
}

// After a misprediction, a member waits firstPause rounds before it speculates again. Each further
// misprediction doubles this pause, at most maxDoublings times. An attacker that causes
// mispredictions therefore wastes little of the member's time.
const (
	firstPause   = 16 // rounds
	maxDoublings = 6
)

// erred records a mispredicted outcome.
func (o *Outlook) erred(step uint32) {
	o.from = step + firstPause<<min(o.Mistakes, maxDoublings)
	o.Mistakes++
}

// Failed records that a speculation was not possible.
func (o *Outlook) Failed(step uint32) { o.from = step + firstPause }

// pays reports whether speculation is worthwhile. It saves the wait for the decision about a round.
// It costs a copy of the weights, which takes a small part of the time to apply results. In
// addition, the trainer may have to finish a training that used a misprediction before it starts
// the right one. That must not take longer than witnesses wait for late members (leeway), or an
// attacker that causes a misprediction could have this member dropped.
func (o *Outlook) pays(step uint32, leeway time.Duration) bool {
	return step >= o.from && o.Wait > o.Took/4 && o.Took+o.Trains <= leeway
}
