package coordinator

import (
	"math"
	"slices"
	"strings"
)

const (
	waitForModelShare = 16             // an epoch waits for a model for this part of the time that its steps took at most
	mostWaitForModel  = 24 * 3_600_000 // milliseconds
)

// reportUpload enters where a copy of a recorded checkpoint lies. Each reporter has one
// place in the list, so that it can take back nobody's statement but its own. When all
// places are taken, uploadInTheWay says whose makes room.
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

// uploadToReplace returns which of the uploads makes room for a report, or -1 for none.
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

// isRecorded reports whether the checkpoint is the run's, or one of those before it.
func (s *State) isRecorded(r Recorded) bool {
	c := s.Model.Checkpoint
	return !c.Kind.isOrigin() && r == Recorded{Step: c.Step, Digest: c.Digest} || slices.Contains(s.Earlier, r)
}

// uploadInTheWay returns which upload makes room for a report about a step when all places are
// taken, or -1 for none: the one of the earliest checkpoint of those that are stale; else the one
// whose reporter was a member for the shortest time, if that is shorter than the sender was. So
// no number of newer members takes a report out.
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

// isStale reports whether an upload makes room for anybody's of a step: the run has forgotten
// its checkpoint, or its reporter takes part no more and the step is later.
func (s *State) isStale(u *Upload, step uint32) bool {
	return !s.isRecorded(Recorded{Step: u.Step, Digest: u.Digest}) ||
		u.Step < step && !s.isHealthy(u.Reporter) && !s.IsPending(u.Reporter)
}

// seniority orders reporters by how long they have been members: the end of their probation, 0
// of a key with an office, and the largest number of a key that never was a member.
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

// valid reports whether others can be told of the place: a repository at a commit, which
// does not change, or a bucket and a prefix.
func (p *Place) valid() bool {
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

// printable reports whether a text is of printable ASCII without spaces.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// membersTime returns for how many milliseconds an epoch still waits for others once enough clients are
// there. Where none of them has the run's model, nor an upload, it is as long as a Warmup gives members to
// load one, and longer the more there is to lose: the run would go on from an older model, while those that
// hold the newest may be starting again. That is a sixteenth of the longest time that the steps to be lost
// may have taken, a day at most. Steps that the run's model lacks already are not lost again. A newcomer's
// word that it holds a model shortens nothing: it may be false, and the newcomer may get no seat.
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
	newest := s.newestAtHand(members)
	if newest.Step >= checkpoint.Step {
		return wait
	}
	lost := uint64(s.seen(max(s.OriginStep, newest.Step+1)))
	return max(wait, s.Config.WarmupTime, min(lost*min(s.Config.MaxRoundTrainTime, mostWaitForModel)/waitForModelShare, mostWaitForModel))
}

// seen returns how many steps from first on the model of the checkpoint has seen, as far as is known: those of
// lapses are not among them.
func (s *State) seen(first uint32) uint32 {
	last := s.Model.Checkpoint.Step
	seen := max(last+1, first) - first
	for _, l := range s.Lapses {
		if from, to := max(l.First, first), min(l.Last, last); from <= to {
			seen -= to - from + 1
		}
	}
	return seen
}

// AwaitsModelUntil returns the Unix time in milliseconds until which an epoch that could start
// waits for a client that has the run's model. It returns 0 if the epoch does not wait, or if no
// time ends the wait. After that time the run continues from an older model, unless a newcomer that
// claims to hold this model gets a seat.
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

// newestAtHand returns the newest recorded model that one of clients said it holds, or of which there is an
// upload that was not tried in vain; step 0 for none.
func (s *State) newestAtHand(clients []Client) Recorded {
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

// WaitsForMember reports whether no epoch may start, however many clients are pending, because no
// model of the run was uploaded and every pending client is new and does not claim to hold the
// checkpoint's model. (A member that lost its key makes that claim under its new key.) New clients
// alone cannot make the run abandon its model, because the members that have it may return later.
// The main authority may name another checkpoint.
func (s *State) WaitsForMember() bool {
	return s.RunState == WaitingForMembers && !s.Model.Checkpoint.Kind.isOrigin() &&
		!slices.ContainsFunc(s.Pending, func(c Client) bool { return c.HoldsModel || !c.isNew() }) &&
		!slices.ContainsFunc(s.Uploads, func(u Upload) bool { return u.Tries < MaxUploadTries })
}

// enoughWait reports whether an epoch may begin with those that wait.
func (s *State) enoughWait() bool {
	return len(s.Pending) >= int(s.Config.InitMinClients) && !s.WaitsForMember()
}

// waitsAnew reports whether too few are left of those that wait, so that their time is counted anew when enough
// are there. The time in which they wait for somebody who has the run's model may be a day, and goes on while some
// are away that may let the run go on without it: or whoever comes and goes would hold the others up for ever.
func (s *State) waitsAnew() bool {
	return s.MinimumSince != 0 && !s.enoughWait() &&
		(len(s.Pending) == 0 || s.WaitsForMember() || s.membersTime() <= s.Config.WaitingForMembersExtraTime)
}

// fallBackIfModelIsGone returns to a model that can still be had when none of the members that
// an epoch will have holds that of the checkpoint. It is the newest recorded checkpoint that a member
// said it holds or of which somebody reported an upload, be it the present one, and the run's origin
// when there is none: or when none of the uploads gave anybody the model in MaxUploadTries Warmups, so
// that whoever reports what is not there holds the run up no longer than that.
//
// The numbers of epoch, step and sequence go on: no data is trained on twice, and what the
// model has lost is noted as a lapse. Where only optimizers are gone, they start afresh.
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
	newest := s.newestAtHand(members)
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

// countTry notes that nobody got the model of the checkpoint from its uploads.
func (s *State) countTry() {
	for i := range s.Uploads {
		if u := &s.Uploads[i]; u.Digest == s.Model.Checkpoint.Digest && u.Tries < MaxUploadTries {
			u.Tries++
		}
	}
}

// remember keeps a model of the run that a later one replaces: its upload may still run, or it may be
// the newest that anybody has left. An origin is not forgotten anyway.
func (s *State) remember(r Recorded, kind CheckpointKind) {
	if kind.isOrigin() {
		return
	}
	if len(s.Earlier) == MaxEarlier {
		s.Earlier = slices.Delete(s.Earlier, 0, 1)
	}
	s.Earlier = append(s.Earlier, r)
}

// recordedAs reports what a digest is to the run: its checkpoint, or that of an earlier step.
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

// noteLapse notes which steps the model that an epoch starts from has not seen.
func (s *State) noteLapse() {
	first, next := s.OriginStep, s.Progress.Step
	if c := s.Model.Checkpoint; !c.Kind.isOrigin() {
		first = c.Step + 1
	}
	if first >= next {
		return
	}
	s.Lapses = slices.DeleteFunc(s.Lapses, func(l Lapse) bool { return l.First >= first })
	if len(s.Lapses) == MaxLapses {
		s.Lapses = slices.Delete(s.Lapses, 0, 1)
	}
	s.Lapses = append(s.Lapses, Lapse{First: first, Last: next - 1})
}

// brokenUploads names what is wrong with the lists of this file.
func (s *State) brokenUploads() string {
	c := s.Model.Checkpoint
	switch {
	case len(s.Earlier) > MaxEarlier:
		return "earlier checkpoints"
	case len(s.Lapses) > MaxLapses:
		return "lapses"
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
	for _, l := range s.Lapses {
		if l.First < next || l.Last < l.First || l.Last >= s.Progress.Step {
			return "lapses"
		}
		next = l.Last + 1
	}
	return ""
}
