package coordinator

import (
	"math"
	"slices"
	"strings"
)

const (
	waitForModelShare = 16             // an epoch waits for a model at most 1/16 of the time that the lost steps took
	mostWaitForModel  = 24 * 3_600_000 // milliseconds
)

// reportUpload records the location of a copy of a recorded checkpoint. Each reporter has one entry
// in the list, so that it can replace only its own report. If the list is full, uploadInTheWay
// selects the entry to replace.
func (s *State) reportUpload(from ClientID, a ReportUpload) error {
	replaced, err := s.uploadToReplace(from, a)
	if err != nil {
		return err
	}
	if replaced >= 0 {
		s.Uploads = slices.Delete(s.Uploads, replaced, replaced+1)
	}
	s.Uploads = append(s.Uploads, Upload{Reporter: from, Step: a.Step, Digest: a.Digest, Place: a.Place, Since: s.seniority(from)})
	return nil
}

// CheckUpload returns the error with which Apply would refuse a report now. It does not check the
// nonce, or whether the run is over.
func (s *State) CheckUpload(from ClientID, a ReportUpload) error {
	_, err := s.uploadToReplace(from, a)
	return err
}

// uploadToReplace returns the index of the upload that a report replaces, or -1 for none.
func (s *State) uploadToReplace(from ClientID, a ReportUpload) (int, error) {
	if i := indexOf(s.Pending, from); !s.isHealthy(from) && (i < 0 || !s.Pending[i].HoldsModel) {
		return 0, ErrNotMember
	}
	if !a.Place.valid() {
		return 0, ErrInvalidAction
	}
	if !s.isRecorded(Recorded{Step: a.Step, Digest: a.Digest}) {
		return 0, ErrUnrecorded
	}
	replaced := slices.IndexFunc(s.Uploads, func(u Upload) bool { return u.Reporter == from })
	switch {
	case replaced >= 0 && s.Uploads[replaced].Step >= a.Step:
		return 0, ErrDuplicate
	case replaced < 0 && len(s.Uploads) == MaxUploads:
		if replaced = s.uploadInTheWay(from, a.Step); replaced < 0 {
			return 0, ErrFull
		}
	}
	return replaced, nil
}

// isRecorded reports whether r is the run's current checkpoint or an earlier recorded one.
func (s *State) isRecorded(r Recorded) bool {
	c := s.Model.Checkpoint
	return !c.Kind.isOrigin() && r == Recorded{Step: c.Step, Digest: c.Digest} || slices.Contains(s.Earlier, r)
}

// uploadInTheWay returns the index of the upload that a report about a step replaces when the list
// is full, or -1 for none. If some uploads are stale (isStale), it is the stale upload of the
// earliest checkpoint. Otherwise it is the upload whose reporter was a member for the shortest time,
// if the sender was a member for longer. Therefore newer members, however many, cannot remove a
// report.
func (s *State) uploadInTheWay(from ClientID, step uint32) int {
	stale, youngest := -1, 0
	for i := range s.Uploads {
		u := &s.Uploads[i]
		if s.isStale(u, step) && (stale < 0 || u.Step < s.Uploads[stale].Step) {
			stale = i
		}
		if last := &s.Uploads[youngest]; u.Since > last.Since || u.Since == last.Since && u.Step < last.Step {
			youngest = i
		}
	}
	switch {
	case stale >= 0:
		return stale
	case s.Uploads[youngest].Since > s.seniority(from):
		return youngest
	default:
		return -1
	}
}

// isStale reports whether any member's report of a step may replace an upload. It may if the run has
// forgotten the upload's checkpoint, or if the upload's reporter is no longer in the run and the
// reported step is later.
func (s *State) isStale(u *Upload, step uint32) bool {
	return !s.isRecorded(Recorded{Step: u.Step, Digest: u.Digest}) ||
		u.Step < step && !s.isHealthy(u.Reporter) && !s.IsPending(u.Reporter)
}

// seniority orders reporters by the duration of their membership: longer membership gives a lower
// number. It is the end of the reporter's probation, 0 for a key with a role, and the largest number
// for a key that never was a member.
func (s *State) seniority(id ClientID) uint32 {
	if s.hasOffice(id) {
		return 0
	}
	client, ok := s.Member(id)
	if i := indexOf(s.Pending, id); !ok && i >= 0 {
		client, ok = &s.Pending[i], true
	}
	if !ok || client.isNew() {
		return math.MaxUint32
	}
	return client.ProbationUntil
}

// UploadsOf returns the reported uploads of a checkpoint, in the order in which to try them.
func (s *State) UploadsOf(digest [32]byte) []Upload {
	var found []Upload
	for _, u := range s.Uploads {
		if u.Digest == digest {
			found = append(found, u)
		}
	}
	return found
}

// valid reports whether the location may be published: a repository at a commit, which does not
// change, or a bucket and a prefix.
func (p *Location) valid() bool {
	if p.Repo == "" || len(p.Repo)+len(p.Revision) > MaxRepoLength || !printable(p.Repo) || !printable(p.Revision) {
		return false
	}
	switch p.Kind {
	case CheckpointHub:
		return len(p.Revision) == 40 && strings.Trim(p.Revision, "0123456789abcdef") == ""
	case CheckpointGcs:
		return true
	default:
		return false
	}
}

// printable reports whether a text consists of printable ASCII characters without spaces.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// membersTime returns how many milliseconds an epoch waits for further clients once enough clients
// are pending. It is WaitingForMembersExtraTime if a former member or an upload can provide the
// run's model, or if that model is an origin. Otherwise the run would continue from an older model,
// although clients with the newest model may be restarting. The epoch then waits for a sixteenth of
// the longest time that training the lost steps may have taken, but at least for WarmupTime and at
// most for a day. Steps that the run's model already lacks do not count. A newcomer's claim that it
// holds a model does not shorten the time: the claim may be false, and the newcomer may not get a
// seat.
func (s *State) membersTime() uint64 {
	wait := s.Config.WaitingForMembersExtraTime
	checkpoint := s.Model.Checkpoint
	if checkpoint.Kind.isOrigin() {
		return wait
	}
	members := slices.DeleteFunc(slices.Clone(s.Pending), func(c Client) bool { return c.isNew() })
	if slices.ContainsFunc(members, func(c Client) bool { return c.HoldsModel }) {
		return wait
	}
	newest := s.newestAvailable(members)
	if newest.Step >= checkpoint.Step {
		return wait
	}
	lost := uint64(s.seen(max(s.OriginStep, newest.Step+1)))
	return max(wait, s.Config.WarmupTime, min(lost*min(s.Config.MaxRoundTrainTime, mostWaitForModel)/waitForModelShare, mostWaitForModel))
}

// seen returns how many steps, starting with first, the checkpoint's model includes as far as is
// known. Steps of rollback gaps do not count.
func (s *State) seen(first uint32) uint32 {
	last := s.Model.Checkpoint.Step
	seen := max(last+1, first) - first
	for _, l := range s.RollbackGaps {
		if from, to := max(l.First, first), min(l.Last, last); from <= to {
			seen -= to - from + 1
		}
	}
	return seen
}

// AwaitsModelUntil returns the Unix time in milliseconds until which an epoch that could start waits
// for a client that has the run's model. It returns 0 if the epoch does not wait, or if it waits
// without a time limit. After that time the run continues from an older model, unless a newcomer
// that claims to hold the run's model gets a seat.
func (s *State) AwaitsModelUntil() uint64 {
	if s.RunState != WaitingForMembers || s.MinimumSince == 0 || !s.enoughWait() || s.membersTime() <= s.Config.WaitingForMembersExtraTime {
		return 0
	}
	until := s.MinimumSince + s.membersTime()
	if until < s.MinimumSince {
		return 0
	}
	return until
}

// newestAvailable returns the newest recorded model that is available, because one of the clients
// claims to hold it or because it has an upload that has not failed too often. Step 0 means none.
func (s *State) newestAvailable(clients []Client) Recorded {
	var newest Recorded
	for _, u := range s.Uploads {
		if u.Step > newest.Step && u.Tries < MaxUploadTries {
			newest = Recorded{Step: u.Step, Digest: u.Digest}
		}
	}
	for _, c := range clients {
		for _, r := range s.Earlier {
			if r.Step == c.HoldsEarlier && r.Step > newest.Step {
				newest = r
			}
		}
	}
	return newest
}

// WaitsForMember reports whether no epoch may start, however many clients are pending. That is so if
// no usable upload exists and every pending client is new and does not claim to hold the
// checkpoint's model. (A member that lost its key can make that claim under its new key.) New
// clients alone cannot make the run abandon its model, because the members that have it may return
// later. The main authority may name another checkpoint.
func (s *State) WaitsForMember() bool {
	return s.RunState == WaitingForMembers && !s.Model.Checkpoint.Kind.isOrigin() &&
		!slices.ContainsFunc(s.Pending, func(c Client) bool { return c.HoldsModel || !c.isNew() }) &&
		!slices.ContainsFunc(s.Uploads, func(u Upload) bool { return u.Tries < MaxUploadTries })
}

// enoughWait reports whether an epoch may start with the pending clients.
func (s *State) enoughWait() bool {
	return len(s.Pending) >= int(s.Config.InitMinClients) && !s.WaitsForMember()
}

// waitsAgain reports whether too few clients are still pending, so that the waiting time must start
// again once there are enough. The wait for a client with the run's model is an exception, because
// it may take a day: it does not restart when some of the pending clients leave, unless none is left
// or WaitsForMember reports true. Otherwise a client that repeatedly joins and leaves could delay
// the others forever.
func (s *State) waitsAgain() bool {
	return s.MinimumSince != 0 && !s.enoughWait() &&
		(len(s.Pending) == 0 || s.WaitsForMember() || s.membersTime() <= s.Config.WaitingForMembersExtraTime)
}

// fallBackIfModelIsGone falls back to an available model if none of the members of the next epoch
// holds the checkpoint's model. It selects the newest recorded checkpoint, possibly the current one,
// that a member claims to hold or that has a reported upload, and the run's origin if there is none.
// An upload from which no member could load the model in MaxUploadTries Warmups no longer counts.
// Therefore a false report cannot delay the run longer than that.
//
// The numbers of epoch, step and sequence continue: no data is trained on twice, and the steps
// missing from the model are recorded as a rollback gap. If only optimizer states are lost, they are
// reset.
func (s *State) fallBackIfModelIsGone(members []Client) {
	checkpoint := &s.Model.Checkpoint
	if checkpoint.Kind.isOrigin() {
		return
	}
	if slices.ContainsFunc(members, func(c Client) bool { return c.HoldsModel }) {
		if !slices.ContainsFunc(members, func(c Client) bool { return c.OptimizerSince != 0 }) {
			s.ColdStart = true
		}
		return
	}
	s.ColdStart = true
	s.Uploads = slices.DeleteFunc(s.Uploads, func(u Upload) bool { return u.Tries >= MaxUploadTries })
	newest := s.newestAvailable(members)
	if newest.Step == 0 {
		*checkpoint = checkpoint.origin()
		s.Earlier = nil
		return
	}
	checkpoint.Step, checkpoint.Digest = newest.Step, newest.Digest
	s.Earlier = slices.DeleteFunc(s.Earlier, func(r Recorded) bool { return r.Step >= newest.Step })
	for i := range members {
		members[i].HoldsModel = members[i].HoldsEarlier == newest.Step
	}
}

// countTry records that no member could load the checkpoint's model from its uploads.
func (s *State) countTry() {
	for i := range s.Uploads {
		if u := &s.Uploads[i]; u.Digest == s.Model.Checkpoint.Digest && u.Tries < MaxUploadTries {
			u.Tries++
		}
	}
}

// remember keeps a recorded model after a later model has replaced it. Its upload may still be
// running, or it may be the newest model that any client still holds. An origin need not be kept.
func (s *State) remember(r Recorded, kind CheckpointKind) {
	if kind.isOrigin() {
		return
	}
	if len(s.Earlier) == MaxEarlier {
		s.Earlier = slices.Delete(s.Earlier, 0, 1)
	}
	s.Earlier = append(s.Earlier, r)
}

// recordedAs looks up a digest among the recorded models. model reports whether it is the run's
// current checkpoint. Otherwise earlier is the step of the earlier checkpoint with this digest, or
// 0.
func (s *State) recordedAs(digest [32]byte) (model bool, earlier uint32) {
	if c := s.Model.Checkpoint; !c.Kind.isOrigin() && digest == c.Digest {
		return true, 0
	}
	for _, r := range slices.Backward(s.Earlier) {
		if r.Digest == digest {
			return false, r.Step
		}
	}
	return false, 0
}

// noteLapse records the steps that the starting model of an epoch lacks.
func (s *State) noteLapse() {
	first, next := s.OriginStep, s.Progress.Step
	if c := s.Model.Checkpoint; !c.Kind.isOrigin() {
		first = c.Step + 1
	}
	if first >= next {
		return
	}
	s.RollbackGaps = slices.DeleteFunc(s.RollbackGaps, func(l RollbackGap) bool { return l.First >= first })
	if len(s.RollbackGaps) == MaxRollbackGaps {
		s.RollbackGaps = slices.Delete(s.RollbackGaps, 0, 1)
	}
	s.RollbackGaps = append(s.RollbackGaps, RollbackGap{First: first, Last: next - 1})
	s.rollBack(first - 1)
}

// brokenUploads describes an invalid entry in the lists of this file.
func (s *State) brokenUploads() string {
	c := s.Model.Checkpoint
	switch {
	case len(s.Earlier) > MaxEarlier:
		return "earlier checkpoints"
	case len(s.RollbackGaps) > MaxRollbackGaps:
		return "rollback gaps"
	case len(s.Uploads) > MaxUploads:
		return "uploads"
	}
	if c.Kind.isOrigin() && len(s.Earlier)+len(s.Uploads) > 0 {
		return "uploads"
	}
	limit := c.Step
	for _, r := range slices.Backward(s.Earlier) {
		if r.Step >= limit {
			return "earlier checkpoints"
		}
		limit = r.Step
	}
	reporters := make([]ClientID, len(s.Uploads))
	for i := range s.Uploads {
		u := &s.Uploads[i]
		reporters[i] = u.Reporter
		if !u.Place.valid() || u.Step > c.Step || u.Tries > MaxUploadTries || u.Step == c.Step && u.Digest != c.Digest {
			return "uploads"
		}
		if slices.ContainsFunc(s.Uploads[:i], func(o Upload) bool { return o.Step == u.Step && o.Digest != u.Digest }) {
			return "uploads"
		}
	}
	if repeats(reporters) {
		return "uploads"
	}
	if s.OriginStep == 0 || s.OriginStep > s.Progress.Step {
		return "origin step"
	}
	next := uint32(1)
	for _, l := range s.RollbackGaps {
		if l.First < next || l.Last < l.First || l.Last >= s.Progress.Step {
			return "rollback gaps"
		}
		next = l.Last + 1
	}
	return ""
}
