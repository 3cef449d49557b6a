package core

import (
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Options configure a Member.
type Options struct {
	ID         coordinator.ClientID
	Name       string // for Join; may be empty
	Holdings   Holdings
	Folder     bool          // the member writes checkpoints to a folder
	AcceptLoss bool          // the member joins even if steps of the run may be lost
	Checks     bool          // the member checks before a Join whether it can do its part
	FinalWait  time.Duration // how long the member stays after the end of the run; negative: it does not stay
}

// Holdings finds models that this member can load by itself. A member calls its methods only when
// their results matter, because they may read the disk.
type Holdings interface {
	// Checkpoint reports whether the member can load the run's checkpoint.
	Checkpoint(s *coordinator.State) bool
	// Shares reports whether peers can fetch a model from the member.
	Shares(digest [32]byte) bool
	// Newest returns the newest model that the run recorded and that the member can load, or zero.
	Newest(s *coordinator.State) coordinator.Recorded
	// Saved returns the newest model in the folder that the run recorded.
	Saved(s *coordinator.State) (newest coordinator.Recorded, found bool)
	// Before returns the step of the newest checkpoint of the run in the folder before a step; 0: none.
	Before(step uint32) uint32
}

// Model is a model between two epochs.
type Model struct {
	Step   uint32
	Digest [32]byte
	Origin coordinator.Checkpoint // checkpoint for which it was loaded; zero if it was trained here
}

// FinalModel is the status of a client's model in a finished run.
type FinalModel uint8

const (
	ModelRecorded   FinalModel = iota // the model that the run recorded
	ModelUnrecorded                   // the model of the last round; the run recorded no model of that round
	ModelOld                          // a model before the last round
	ModelOther                        // a model that is not the run's
	ModelNone                         // no model
)

// Event is an input of a Member. Its types are in the files of the phases.
type Event interface{ event() }

// Report is a message for the user. Its types are in the files of the phases.
type Report interface{ report() }

// Ready contains the effects of an event. The caller first reports, then submits and starts, and then
// executes the effects on the trainer, the round and the end. An effect that needs an answer names the
// event that contains it.
type Ready struct {
	Ended         *FinalModel // how the run ended for the member; the caller reports this first
	Report        []Report
	Persist       *Model       // a model that must be on the disk before the member announces it; Persisted follows
	Submit        []Submission // the caller passes the answers to Step, as Answered
	Start         []Started    // tasks that run concurrently with the trainer
	Fail          error        // if not nil, the member ends with this error
	Desynchronise string       // reason why the weights are not the run's any more; empty: they are

	TrainerReady
	RoundReady
	EndReady
}

// TrainerReady contains effects on the trainer and its tokens.
type TrainerReady struct {
	Ask         bool // the caller asks the auditor; Permitted follows if the auditor permits the training
	Forget      bool // the reader forgets the tokens of all batches except Keep
	Keep        []assign.BatchID
	CancelAhead bool            // the caller cancels the training that began ahead of its round
	Read        *assign.BatchID // the caller reads the tokens of a batch; Tokens follows
	Begin       bool            // the round of the training in progress has begun
	Enter       *Entry          // the member enters the running epoch with the model for which the optimizer is prepared
	ReadFirst   bool            // the caller reads the tokens of the member's first batch; Offering and Prepared follow
	Included    bool            // the weights include the round of Counted: the caller only records that
	Next        Work            // the trainer's next work; the caller starts it when the trainer is idle
}

// Entry is a member's replica when it enters an epoch.
type Entry struct {
	Step         uint32   // newest step that the replica includes
	Hash, Before [32]byte // replica hashes after Step, and after the step before
}

// RoundReady contains effects on a round.
type RoundReady struct {
	Judge    bool          // the caller determines the outcome of the next unapplied round; Judged follows
	AskPeers bool          // the caller asks peers for missing results of the round, if they can help
	HeldAll  bool          // the member holds all results of the running round that can be expected
	Prove    bool          // the caller makes a proof; Proof follows
	Preempt  time.Duration // if positive, an urgent recomputation may delay the next training for so long
}

// EndReady contains effects at the end of an epoch, of the run and of the member.
type EndReady struct {
	LeaveEpoch bool // the member drops its replica of an epoch, whose model it has taken
	Hasten     bool // the caller tries soon to save the checkpoint that could not be saved
	CopyHeld   bool // the caller copies the held model, to write it to the disk
	Gone       bool // nothing is left to do before the member withdraws
	End        bool // the member ends
}

// Submission is an action for the coordinator.
type Submission struct {
	Kind   string
	Action coordinator.Action
}

// Started is work that has been recorded in Jobs.
type Started struct {
	ID   ID
	Work Work
}

// common contains the state that all phases share.
type common struct {
	Options
	Jobs        Jobs
	Actions     Actions
	Leave       Leave
	commitments commitments // valid after Began
	Outlook     Outlook

	now   time.Time
	state *coordinator.State // nil: none seen; never modified
	ready Ready
}

// isMember reports whether this client is a healthy member of the epoch.
func (c *common) isMember() bool {
	me, ok := c.state.Member(c.ID)
	return ok && me.State == coordinator.Healthy
}

// waits returns this client's entry among the clients that wait for the next epoch, or nil.
func (c *common) waits() *coordinator.Client { return find(c.state.Pending, c.ID) }

// find returns the entry of a client, or nil.
func find(clients []coordinator.Client, id coordinator.ClientID) *coordinator.Client {
	for i := range clients {
		if clients[i].ID == id {
			return &clients[i]
		}
	}
	return nil
}

// modelSyncTime returns the time that members have to get a model from a holder.
func (c *common) modelSyncTime() time.Duration {
	return time.Duration(c.state.Config.WarmupTime) * time.Millisecond
}

// submit submits an action unless the same action is in flight or was answered a moment ago.
func (c *common) submit(kind string, about any, action coordinator.Action) (sends bool) {
	if sends = c.Actions.Submit(c.now, kind, about, action); sends {
		c.ready.Submit = append(c.ready.Submit, Submission{kind, action})
	}
	return sends
}

// start starts a task.
func (c *common) start(w Work) ID {
	id := c.Jobs.Spawn(w)
	c.ready.Start = append(c.ready.Start, Started{id, w})
	return id
}

// report adds a message for the user.
func (c *common) report(r Report) { c.ready.Report = append(c.ready.Report, r) }
