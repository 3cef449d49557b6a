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
	DataContinuous Assertion = "the data index advances by exactly what each round holds, and batches cover it"
	QuorumOrTime   Assertion = "no round advances without its quorum or its time"
	InTime         Assertion = "no phase outlasts its time, or what it waits for"
	SeedsRight     Assertion = "batch seeds are those that the chain said a round before, and witness seeds are fresh; nobody chooses what the chain takes in"
	OnlyElected    Assertion = "only elected witnesses are accepted, each once"
	CountedRight   Assertion = "exactly the results that the witnesses' quorum proved are applied, all signed by assignees"
	TrainedRight   Assertion = "an honest trainer's result that counts was made from the model that its round says"
	NotReplayed    Assertion = "no action is accepted twice"
	OwnSeat        Assertion = "a member that left takes its own seat back, as late as it left, three times in an epoch at most, and nobody else gets one while rounds run"
	SignedOnce     Assertion = "no honest client signs two results of one batch, however often it is killed"
	NotFramed      Assertion = "nobody is found late whose result a quorum of witnesses holds; nobody is dropped but by two committees, the second by its quorum; a third at most are dropped in a round, and slow in an epoch"
	SeatsFair      Assertion = "members keep their seats and their probation, newcomers are drawn, those on probation stay few, and their results are skipped"
	Ejected        Assertion = "a member that is proved to have signed two results, and nobody else, is out for the rest of the epoch and the next one"
	CheckpointTrue Assertion = "the recorded checkpoint is the model with every counted result up to its step, reported by a third of an epoch's first members"
	CommitKept     Assertion = "an epoch ends with the model of its last step, or of its newest commit point, and no run goes on from an older one than a member holds"
	ReplayEqual    Assertion = "replaying the journal gives the live state"
	NothingLost    Assertion = "an acknowledged action, and a state that was shown, survive every crash of the host"
	ShownFirst     Assertion = "a client that was answered finds what it did, but for what may wait for more of its kind"
	KeepsGrace     Assertion = "the host withdraws a member that is gone for its grace, neither earlier nor later"
	NoPaceSetter   Assertion = "where most witnesses are honest a round waits for two thirds of its trainers, and a quarter longer or two seconds"
	OneHistory     Assertion = "a client that is told of two histories while a round runs ends, with two heads that the host signed"
	Progress       Assertion = "when faults stop every honest client makes progress and the run finishes in time"
	AuditsRight    Assertion = "what audits look at is drawn when a round is over, by what its witnesses committed to and by the chain"
	FairlyTried    Assertion = "members that are past their probation accuse, of results, juries are drawn by a seed that nobody knew, eleven in twenty of one eject, and trials last as long as they should"
	NobodyFramed   Assertion = "no honest member is ejected while fewer than a third collude"
	KeepsSeat      Assertion = "an honest member on any link keeps its seat, whoever accuses it and whatever is requested of it"
	InTurns        Assertion = "an honest member sends few parts of openings at a time, whoever requests them"
	HonestSafe     Assertion = "no honest member accuses an honest one or finds it guilty, whatever fails around them"
	ClaimsKept     Assertion = "what a witness claims of its training is kept as it said, and where most of those that claim are honest the median is between what these claim"
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
	return fmt.Sprintf("broken after %.3f s: %s: %s", v.Seconds, v.Assertion, v.Detail)
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
