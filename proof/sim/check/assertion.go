package check

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Assertion is the name of an assertion.
type Assertion string

// The assertions.
const (
	Invariants     Assertion = "coordinator.State.Check holds after every transition"
	OnceOnly       Assertion = "no batch is applied twice"
	SameReplica    Assertion = "honest clients at the same step have the same replica hash and weights"
	DataContinuous Assertion = "the data index advances by the sequences of each round, and the round's batches cover exactly these sequences"
	QuorumOrTime   Assertion = "no round advances before its quorum is reached or its time is over"
	InTime         Assertion = "every phase ends when its time is over or its condition is met"
	SeedsRight     Assertion = "each batch seed follows from the seed chain of the round before, each witness seed is new, and no participant chooses the input of the chain"
	OnlyElected    Assertion = "only elected witnesses are accepted, each once"
	CountedRight   Assertion = "exactly the results that the witnesses' quorum proved are applied, all signed by assignees"
	TrainedRight   Assertion = "every counted result of an honest trainer was computed from the model and the sequences that its round requires"
	NotReplayed    Assertion = "no action is accepted twice"
	OwnSeat        Assertion = "a member that left returns to its own seat, with the same lateness, at most three times per epoch, and no other client gets a seat while rounds run"
	SignedOnce     Assertion = "no honest client signs two results of one batch, however often it is killed"
	NotFramed      Assertion = "no member is found late if a quorum of witnesses holds its result; a member is dropped only after findings of two committees, the second with a quorum; at most a third of the members are dropped in a round or slow in an epoch"
	SeatsFair      Assertion = "members keep their seats and their probation, newcomers are drawn, few members are on probation, and their results are skipped"
	Ejected        Assertion = "exactly the members that provably signed two results are excluded, for the rest of the epoch and the next epoch"
	CheckpointTrue Assertion = "the recorded checkpoint contains every counted result up to its step, and a third of the epoch's first members reported it"
	CommitKept     Assertion = "an epoch ends with the model of its last step or of its newest intermediate checkpoint, and no run continues from an older model than a member holds"
	ReplayEqual    Assertion = "replaying the journal gives the live state"
	NothingLost    Assertion = "acknowledged actions and published states survive every crash of the host"
	ShownFirst     Assertion = "the state contains a client's action when the client gets its answer, except for actions that are applied in groups"
	KeepsGrace     Assertion = "the host withdraws a disconnected member at the end of the grace period, neither earlier nor later"
	NoPaceSetter   Assertion = "if most witnesses are honest, a round waits for two thirds of its trainers, and then a quarter of that time or two seconds longer"
	OneHistory     Assertion = "a client that sees two histories during a round exits, with two heads that the host signed"
	Progress       Assertion = "after faults stop, every honest client makes progress and the run finishes in time"
	AuditsRight    Assertion = "audits are drawn after a round is over, from the commitments of its witnesses and from the seed chain"
	FairlyTried    Assertion = "only members past their probation accuse, and only of results; juries are drawn by a seed that was unknown before; eleven twentieths of a jury eject; and trials end in time"
	NobodyFramed   Assertion = "no honest member is ejected while fewer than a third of the members collude"
	KeepsSeat      Assertion = "an honest member on any link keeps its seat, regardless of accusations and requests"
	InTurns        Assertion = "an honest member sends few parts of openings at a time, regardless of the requests"
	HonestSafe     Assertion = "no honest member accuses another honest member or finds it guilty, regardless of faults"
	SharesRight    Assertion = "the level of a member in a round was fixed one round before; results that count raise it by little, only a quorum lowers it below the offer and the reference level, few missing results are excused, and slow members have smaller votes"
	SequencesKept  Assertion = "each sequence is counted once, or it waits, is in a round, or was given up, and the run's records say which"
	ClaimsKept     Assertion = "each witness's claim about its training is stored unchanged, and if most claiming witnesses are honest, the median is within the honest claims"
	NodeSound      Assertion = "no honest client fails"
)

// Violation is a violated assertion.
type Violation struct {
	Assertion Assertion
	Detail    string
	Seconds   float64 // virtual time
}

// Error returns the assertion and its violation.
func (v *Violation) Error() string {
	return fmt.Sprintf("violated after %.3f s: %s: %s", v.Seconds, v.Assertion, v.Detail)
}

// Describe describes an action.
func Describe(a coordinator.Action) string {
	switch a := a.(type) {
	case coordinator.Join:
		return fmt.Sprintf("join of epoch %d", a.Epoch)
	case coordinator.Ready:
		return fmt.Sprintf("ready for epoch %d", a.Epoch)
	case coordinator.Return:
		return fmt.Sprintf("return into epoch %d", a.Epoch)
	case coordinator.WitnessRound:
		return fmt.Sprintf("witness of step %d, root %x, replica %x", a.Step, a.CommitmentsRoot[:4], a.Replica[:4])
	case coordinator.HealthCheck:
		return fmt.Sprintf("health check of step %d, %d accused", a.Step, len(a.Clients))
	case coordinator.ReportCheckpoint:
		return fmt.Sprintf("checkpoint of step %d, digest %x", a.Step, a.Digest[:4])
	case coordinator.ReportUpload:
		return fmt.Sprintf("upload of step %d, digest %x", a.Step, a.Digest[:4])
	case coordinator.Equivocation:
		return fmt.Sprintf("proof of two results of step %d", a.Step)
	case coordinator.Withdraw:
		return "withdrawal"
	case coordinator.Accuse:
		return fmt.Sprintf("accusation of %s for step %d: %s", a.Client, a.Step, a.Fault)
	case coordinator.Vote:
		return fmt.Sprintf("vote on %s for step %d, guilty %t", a.Client, a.Step, a.Guilty)
	default:
		return fmt.Sprintf("%T", a)
	}
}
