// Package status describes the state of a run in JSON and as text, for people and for programs that
// do not know the coordinator's encoding.
//
// Of returns the Run for a state. The server's HTTP interface and `psyche run status --json` show
// the same Run.
package status

import (
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// Run describes a run. Keys are in base58, hashes in hexadecimal.
type Run struct {
	RunID        string            `json:"run_id"`
	RunHash      string            `json:"run_hash,omitempty"` // identifies the run in all signed messages
	Name         string            `json:"name,omitempty"`     // display name, set by the main authority
	About        string            `json:"description,omitempty"`
	Host         string            `json:"host"`
	Authority    Authority         `json:"authority"`
	Closed       bool              `json:"closed"`
	Pausing      bool              `json:"pending_pause,omitempty"`  // the run pauses when its epoch ends
	Resuming     bool              `json:"pending_resume,omitempty"` // the run resumes at the host's next tick
	State        string            `json:"run_state"`
	Since        float64           `json:"run_state_start_unix_timestamp"` // seconds, 0 for none
	Epoch        uint32            `json:"epoch"`
	Step         uint32            `json:"step"`
	TotalSteps   uint32            `json:"total_steps"`
	DataIndex    uint64            `json:"data_index"`
	Members      []Client          `json:"members"`
	Exited       []Client          `json:"exited"`
	Pending      []string          `json:"pending"`
	WaitsFor     bool              `json:"waits_for_member,omitempty"`   // no epoch can begin until a former member, or a client with the model, joins
	Awaits       float64           `json:"awaits_model_until,omitempty"` // Unix seconds; until then the next epoch waits for a client with the model
	Round        *Round            `json:"round,omitempty"`
	Claimed      *event.Claimed    `json:"claimed,omitempty"`  // by the witnesses of the newest completed round
	HeldOut      *event.HeldOut    `json:"held_out,omitempty"` // by members that reported the checkpoint
	Checkpoint   Checkpoint        `json:"checkpoint"`
	Commit       *Commit           `json:"commit_point,omitempty"`
	Uploads      []Upload          `json:"uploads"`
	RollbackGaps []RollbackGap     `json:"lapses"`
	Trials       []Trial           `json:"trials"`
	Ejections    []Ejection        `json:"ejections"`
	Names        map[string]string `json:"names,omitempty"` // display names of clients, by key; not proof of identity
	Config       Config            `json:"config"`
	StateHash    string            `json:"state_hash"` // SHA-256 of the state's canonical bytes
}

// Commit is the newest model that enough members of the running epoch reported during its rounds.
type Commit struct {
	Step   uint32 `json:"step"`
	Digest string `json:"digest"`
}

// Authority has the keys that govern the run and the keys that it admits.
type Authority struct {
	Main           string          `json:"main"`
	Join           string          `json:"join"`
	Permissioned   bool            `json:"permissioned"`
	Authorizations []Authorization `json:"authorizations"`
}

// Authorization admits a key and its delegates.
type Authorization struct {
	Grantee   string   `json:"grantee"`
	Number    uint32   `json:"number"`
	Delegates []string `json:"delegates"`

	// Authorizer is the key that the join authority authorized for all of its runs, if the only
	// delegate joined by that authorization. Grantee is then a hash, and no key. It is empty if the
	// authorization is for this run only, or if the key is unknown.
	Authorizer string `json:"authorizer,omitempty"`
}

// NameAuthorizer adds the authorized key of a grant to the authorizations that belong to the grant.
func (r *Run) NameAuthorizer(grant, authorizer coordinator.ClientID) {
	for i := range r.Authority.Authorizations {
		a := &r.Authority.Authorizations[i]
		if len(a.Delegates) != 1 {
			continue
		}
		client, err := identity.ParseID(a.Delegates[0])
		if err == nil && a.Grantee == name(coordinator.Admit{Grant: grant, Client: coordinator.ClientID(client)}.Grantee()) {
			a.Authorizer = name(authorizer)
		}
	}
}

// Client is a member of the epoch.
type Client struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Ready bool   `json:"ready"`

	Probation uint32 `json:"probation_rounds,omitempty"` // in which its results are checked, but do not count yet
	Share
}

// Share is a member's part in a run with shares by speed.
type Share struct {
	Offer     uint32 `json:"offers_tokens_per_second,omitempty"` // speed at which it offers to train; 0: no offer
	Sequences uint64 `json:"sequences,omitempty"`                // of its batch in the newest round
}

// text describes the share after the member's state.
func (s Share) text() string {
	text := ""
	if s.Offer > 0 {
		text = fmt.Sprintf(", offers %d tokens/s", s.Offer)
	}
	if s.Sequences > 0 {
		text += fmt.Sprintf(", trains %d sequences", s.Sequences)
	}
	return text
}

// sharesOf returns the shares of the members, if they follow speeds.
func sharesOf(s *coordinator.State) map[coordinator.ClientID]Share {
	if !s.Config.SharesBySpeed {
		return nil
	}
	shares := make(map[coordinator.ClientID]Share)
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; c.Offer > 0 {
			shares[c.ID] = Share{Offer: uint32(math.Exp2((float64(c.Offer) + 0.5) / 8))} // the middle of the level
		}
	}
	if r := s.CurrentRound(); r != nil {
		for _, a := range r.Assignments(s.Config) {
			id := r.Members[a.Member]
			shares[id] = Share{shares[id].Offer, a.Batch.Len()}
		}
	}
	return shares
}

// Round is the newest round of the epoch.
type Round struct {
	Height    uint32 `json:"height"`
	Step      uint32 `json:"step"`
	Seed      string `json:"seed"`       // decimal text, because it needs all 64 bits
	BatchSeed string `json:"batch_seed"` // decimal text
	DataIndex uint64 `json:"data_index"`
	BatchSize uint32 `json:"batch_size"`
	Members   int    `json:"members"`
	Witnesses int    `json:"witnesses"`
	Quorum    int    `json:"witness_quorum"`
	Elected   int    `json:"witnesses_elected"`
}

// Checkpoint is the model that a joining client starts from.
type Checkpoint struct {
	Kind     string `json:"kind"`
	Repo     string `json:"repo,omitempty"`
	Revision string `json:"revision,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Step     uint32 `json:"step,omitempty"`
}

// Upload is the location of a checkpoint, as reported by a member.
type Upload struct {
	Reporter string `json:"reporter"`
	Kind     string `json:"kind"`
	Repo     string `json:"repo"`
	Revision string `json:"revision"`
	Digest   string `json:"digest"`
	Step     uint32 `json:"step"`
}

// RollbackGap is a range of steps that are missing from the model.
type RollbackGap struct {
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
}

// Config has the rules of the run, under the names of state.toml. Times are in seconds.
type Config struct {
	WarmupTime                  float64 `json:"warmup_time"`
	CooldownTime                float64 `json:"cooldown_time"`
	RoundsPerEpoch              uint32  `json:"rounds_per_epoch"`
	EpochTime                   float64 `json:"epoch_time"`
	MaxRoundTrainTime           float64 `json:"max_round_train_time"`
	RoundWitnessTime            float64 `json:"round_witness_time"`
	WaitingForMembersExtraTime  float64 `json:"waiting_for_members_extra_time"`
	GlobalBatchSizeWarmupTokens uint64  `json:"global_batch_size_warmup_tokens"`
	GlobalBatchSizeStart        uint32  `json:"global_batch_size_start"`
	GlobalBatchSizeEnd          uint32  `json:"global_batch_size_end"`
	TotalSteps                  uint32  `json:"total_steps"`
	InitMinClients              uint16  `json:"init_min_clients"`
	MinClients                  uint16  `json:"min_clients"`
	WitnessNodes                uint16  `json:"witness_nodes"`
	VerificationPercent         uint8   `json:"verification_percent"`
	ProbationSteps              uint32  `json:"probation_steps"`
	EjectionEpochs              uint16  `json:"ejection_epochs"`
	SharesBySpeed               bool    `json:"shares_by_speed"`
	RetryLost                   bool    `json:"retry_lost"`
}

// Of describes the state s of a run. named is the hash of the run, or zero if it is unknown.
func Of(s *coordinator.State, named [32]byte) Run {
	hash := s.Hash()
	run := Run{
		RunID: s.RunID, RunHash: hashText(named), Host: name(s.Host), Authority: authorityOf(&s.Authority), Closed: s.Closed, Pausing: s.PendingPause, Resuming: s.PendingResume, State: s.RunState.String(), Since: seconds(s.StateStart),
		Epoch: s.Progress.Epoch, Step: s.Progress.Step, TotalSteps: s.Config.TotalSteps, DataIndex: s.Progress.DataIndex,
		Members: clients(s, s.Epoch.Clients), Exited: clients(s, s.Epoch.Exited), Pending: []string{}, WaitsFor: s.WaitsForMember(), Awaits: seconds(s.AwaitsModelUntil()),
		Uploads: []Upload{}, RollbackGaps: []RollbackGap{}, Trials: trialsOf(s), Ejections: ejectionsOf(s),
		Checkpoint: checkpointOf(s.Model.Checkpoint), Config: configOf(s.Config), StateHash: hex.EncodeToString(hash[:]),
	}
	run.Name, run.About = config.NameOf(s.Model.Definition)
	if c := s.Epoch.Commit; c.Step != 0 {
		run.Commit = &Commit{c.Step, hex.EncodeToString(c.Digest[:])}
	}
	for i := range s.Pending {
		run.Pending = append(run.Pending, name(s.Pending[i].ID))
	}
	for _, u := range s.Uploads {
		run.Uploads = append(run.Uploads, Upload{
			Reporter: name(u.Reporter), Kind: u.Place.Kind.String(), Repo: u.Place.Repo, Revision: u.Place.Revision,
			Digest: hex.EncodeToString(u.Digest[:]), Step: u.Step,
		})
	}
	for _, l := range s.RollbackGaps {
		run.RollbackGaps = append(run.RollbackGaps, RollbackGap(l))
	}
	run.Claimed, run.HeldOut = event.ClaimedOf(s), event.HeldOutOf(s)
	if r := s.CurrentRound(); r != nil {
		run.Round = &Round{
			Height: r.Height, Step: r.Step, Seed: fmt.Sprint(r.Seed), BatchSeed: fmt.Sprint(r.BatchSeed), DataIndex: r.DataIndex, BatchSize: r.BatchSize,
			Members: len(r.Members), Witnesses: len(r.Witnesses), Quorum: int(r.WitnessesNeeded), Elected: int(r.WitnessesElected),
		}
	}
	return run
}

// Call sets the display name of the client with a key, if the name is safe to show.
func (r *Run) Call(key, name string) {
	if wire.CheckName(name) != nil {
		return
	}
	if r.Names == nil {
		r.Names = make(map[string]string)
	}
	r.Names[key] = name
}

// CallAll sets the display names of clients by key.
func (r *Run) CallAll(names map[identity.ID]string) {
	for id, name := range names {
		r.Call(id.String(), name)
	}
}

// CallPeers sets the display names of peers.
func (r *Run) CallPeers(peers []backend.Peer) {
	for _, p := range peers {
		r.Call(p.ID.String(), p.Name)
	}
}

// claim returns the display name of a client, formatted to follow its key and status.
func (r Run) claim(key string) string {
	if name := r.Names[key]; name != "" {
		return fmt.Sprintf(", calls itself %q", name)
	}
	return ""
}

func authorityOf(a *coordinator.Authority) Authority {
	out := Authority{Main: name(a.Main), Join: name(a.Join), Permissioned: a.Permissioned, Authorizations: []Authorization{}}
	for _, grant := range a.Authorizations {
		shown := Authorization{Grantee: name(grant.Grantee), Number: grant.Number, Delegates: []string{}}
		for _, id := range grant.Delegates {
			shown.Delegates = append(shown.Delegates, name(id))
		}
		out.Authorizations = append(out.Authorizations, shown)
	}
	return out
}

func name(id coordinator.ClientID) string { return identity.ID(id).String() }

func clients(s *coordinator.State, list []coordinator.Client) []Client {
	ready := make(map[coordinator.ClientID]bool, len(s.Epoch.Ready))
	for _, id := range s.Epoch.Ready {
		ready[id] = true
	}
	out, shares := []Client{}, sharesOf(s)
	for i := range list {
		out = append(out, Client{ID: name(list[i].ID), State: list[i].State.String(), Ready: ready[list[i].ID], Probation: s.ProbationLeft(list[i].ID), Share: shares[list[i].ID]})
	}
	return out
}

func checkpointOf(c coordinator.Checkpoint) Checkpoint {
	out := Checkpoint{Kind: c.Kind.String(), Repo: c.Repo, Revision: c.Revision, Step: c.Step}
	if c.Digest != ([32]byte{}) {
		out.Digest = hex.EncodeToString(c.Digest[:])
	}
	return out
}

// seconds converts milliseconds to seconds.
func seconds(ms uint64) float64 { return float64(ms) / 1000 }

func configOf(c coordinator.Config) Config {
	return Config{
		WarmupTime: seconds(c.WarmupTime), CooldownTime: seconds(c.CooldownTime),
		RoundsPerEpoch: c.RoundsPerEpoch, EpochTime: seconds(c.EpochTime),
		MaxRoundTrainTime: seconds(c.MaxRoundTrainTime), RoundWitnessTime: seconds(c.RoundWitnessTime),
		WaitingForMembersExtraTime:  seconds(c.WaitingForMembersExtraTime),
		GlobalBatchSizeWarmupTokens: c.GlobalBatchSizeWarmupTokens,
		GlobalBatchSizeStart:        c.GlobalBatchSizeStart, GlobalBatchSizeEnd: c.GlobalBatchSizeEnd, TotalSteps: c.TotalSteps,
		InitMinClients: c.InitMinClients, MinClients: c.MinClients, WitnessNodes: c.WitnessNodes,
		VerificationPercent: c.VerificationPercent,
		ProbationSteps:      c.ProbationSteps,
		EjectionEpochs:      c.EjectionEpochs,
		SharesBySpeed:       c.SharesBySpeed,
		RetryLost:           c.RetryLost,
	}
}

// Print writes a description of the run at the time now.
func (r Run) Print(to io.Writer, now time.Time) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(name, format string, values ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, plain.Text(fmt.Sprintf(format, values...))) // Flush returns the error
	}
	r.printProgress(line, now)
	r.printModel(line)
	line("host", "%s", r.Host)
	r.printAuthority(line)
	r.printClients(line)
	return w.Flush()
}

// printer writes a line with a name.
type printer func(name, format string, values ...any)

func (r Run) printProgress(line printer, now time.Time) {
	line("run", "%s", r.RunID)
	if r.Name != "" {
		line("name", "%s", r.Name)
	}
	if r.About != "" {
		line("description", "%s", r.About)
	}
	if r.RunHash != "" {
		line("hash", "%s", r.RunHash)
	}
	line("state", "%s", r.stateText(now))
	step := fmt.Sprintf("step %d of %d", r.Step, r.TotalSteps)
	switch {
	case r.Step > r.TotalSteps: // Step is the number of the next step
		step = fmt.Sprintf("all %d steps", r.TotalSteps)
	case r.State != coordinator.RoundTrain.String() && r.State != coordinator.RoundWitness.String(): // no round runs
		step = fmt.Sprintf("step %d of %d", max(r.Step, 1)-1, r.TotalSteps)
	}
	line("progress", "epoch %d, %s, %d sequences", r.Epoch, step, r.DataIndex)
	if r.Round != nil {
		line("round", "%d members, %d of %d witnesses (quorum %d), %d sequences",
			r.Round.Members, r.Round.Witnesses, r.Round.Elected, r.Round.Quorum, r.Round.BatchSize)
	}
}

func (r Run) printModel(line printer) {
	learning := claimedText(r.Claimed)
	if text := r.HeldOut.String(); text != "" {
		learning = append(learning, text)
	}
	for i, text := range learning {
		line(title("learning", i), "%s", text)
	}
	line("checkpoint", "%s", strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", r.Checkpoint.Kind, r.Checkpoint.Repo, r.Checkpoint.Revision, r.Checkpoint.Digest)), " "))
	if r.Commit != nil {
		line("intermediate", "step %d, %s", r.Commit.Step, r.Commit.Digest)
	}
	for i, u := range r.Uploads {
		line(title("uploads", i), "step %d at %s %s %s", u.Step, u.Kind, u.Repo, u.Revision)
	}
	for i, l := range r.RollbackGaps {
		line(title("not in the model", i), "steps %d to %d", l.First, l.Last)
	}
}

func (r Run) printAuthority(line printer) {
	line("main authority", "%s", r.Authority.Main)
	if r.Authority.Permissioned {
		line("join authority", "%s", r.Authority.Join)
		for i, a := range r.Authority.Authorizations {
			delegates := ""
			if a.Authorizer != "" {
				line(title("authorized", i), "%s, by the authorization of %s for all runs, under the grantee %s", a.Delegates[0], a.Authorizer, a.Grantee)
				continue
			}
			if len(a.Delegates) > 0 {
				delegates = ", delegates " + strings.Join(a.Delegates, ", ")
			}
			line(title("authorized", i), "%s%s", a.Grantee, delegates)
		}
	}
}

func (r Run) printClients(line printer) {
	for i, c := range r.Members {
		probation := ""
		if c.Probation > 0 {
			probation = ", " + event.OnProbation(c.Probation, "its")
		}
		line(title("members", i), "%s %s%s%s%s", c.ID, c.State, r.claim(c.ID), c.text(), probation)
	}
	for i, c := range r.Exited {
		line(title("exited", i), "%s %s%s", c.ID, c.State, r.claim(c.ID))
	}
	for i, t := range r.Trials {
		line(title("trials", i), "%s", t.text())
	}
	for i, e := range r.Ejections {
		line(title("ejected", i), "%s until epoch %d: %s", e.Client, e.Until, e.Reason)
	}
	for i, id := range r.Pending {
		line(title("pending", i), "%s%s", id, r.claim(id))
	}
	if r.WaitsFor {
		line("waits for", "a former member, or a client that has the model of step %d", r.Checkpoint.Step)
	}
	if r.Awaits > 0 {
		line("waits for", "a client that has the model of step %d, until %s; then the run continues from an older model, unless a newcomer has the newer one",
			r.Checkpoint.Step, time.UnixMilli(int64(r.Awaits*1000)).UTC().Format(time.DateTime+" MST"))
	}
}

// stateText describes the run state and its start time. A new run has no start time.
func (r Run) stateText(now time.Time) string {
	text := r.State
	if r.Closed {
		text += ", closed"
	}
	if r.Since > 0 {
		text += fmt.Sprintf(" for %s", max(0, now.Sub(time.UnixMilli(int64(r.Since*1000)))).Round(time.Second))
	}
	switch {
	case r.Pausing:
		text += ", pauses at the end of the epoch"
	case r.Resuming:
		text += ", resumes in a moment"
	}
	return text
}

// hashText returns a hash in hexadecimal, or "" for zero.
func hashText(hash [32]byte) string {
	if hash == ([32]byte{}) {
		return ""
	}
	return fmt.Sprintf("%x", hash)
}

// title returns the title for the first line of a list, and "" for the others.
func title(name string, i int) string {
	if i > 0 {
		return ""
	}
	return name
}
